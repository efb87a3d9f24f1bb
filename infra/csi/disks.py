"""Change a hypervisor's disks behind the driver: `python -m infra.csi.disks --hypervisor table:DIR ...`.

No controller checks these changes, and they are not in the file of calls.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from infra.csi import opened
from infra.csi.guests import Libvirt
from infra.csi.hypervisor import Hypervisor, Refused, Volume


def main(arguments: Sequence[str]) -> int:
    """Run a command; return 2, with a line on stderr, if it fails."""
    options = _parser().parse_args(arguments)
    try:
        _run(options, opened.hypervisor(options))
    except (opened.BadCommand, OSError) as error:
        print(f"disks: {error}", file=sys.stderr)
        return 2
    except Refused as refused:
        print(f"disks: {refused.why}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.csi.disks", description=__doc__)
    opened.add_options(parser)
    verbs = parser.add_subparsers(dest="verb", required=True)
    create = verbs.add_parser("create", help="create empty volumes, unless they exist")
    create.add_argument("size", type=int, help="bytes")
    create.add_argument("volumes", nargs="+")
    verbs.add_parser("holders", help="print the machines that have a volume").add_argument("volume")
    attach = verbs.add_parser("attach", help="plug a volume into a machine, even if another one has it")
    attach.add_argument("volume")
    attach.add_argument("node")
    verbs.add_parser("forget", help="detach and delete all volumes")
    return parser


def _run(options: argparse.Namespace, hypervisor: Hypervisor) -> None:
    if options.verb == "create":
        for volume in options.volumes:
            if hypervisor.find(volume) is None:
                hypervisor.create(Volume(volume, options.size))
    elif options.verb == "holders":
        print("".join(f"{node}\n" for node in hypervisor.holders(options.volume)), end="")
    elif options.verb == "attach":
        hypervisor.attach(options.volume, options.node)
    else:
        _forget(options, hypervisor)


def _forget(options: argparse.Namespace, hypervisor: Hypervisor) -> None:
    """Unmount all volumes in guests, remove the driver's sockets, and delete the disks."""
    if isinstance(hypervisor, Libvirt):
        for node in hypervisor.running():
            opened.commands(options, node).forget()
    for volume in hypervisor.all():
        for node in hypervisor.holders(volume):
            hypervisor.detach(volume, node)
        hypervisor.delete(volume)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
