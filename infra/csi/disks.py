"""A hypervisor's disks, past the driver: `python -m infra.csi.disks --hypervisor table:DIR holders ID`.

No controller decides what is done here, and no call of it is written down.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from infra.csi import opened
from infra.csi.guests import Libvirt
from infra.csi.hypervisor import Hypervisor, Refused, Volume


def main(arguments: Sequence[str]) -> int:
    """Do what is asked. Status 2 and a line on stderr where that cannot be done."""
    asked = _parser().parse_args(arguments)
    try:
        _do(asked, opened.hypervisor(asked))
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
    create = verbs.add_parser("create", help="make empty volumes, where they are missing")
    create.add_argument("size", type=int, help="bytes")
    create.add_argument("volumes", nargs="+")
    verbs.add_parser("holders", help="print who has a volume, a line each").add_argument("volume")
    attach = verbs.add_parser("attach", help="plug a volume into a machine, whoever has it")
    attach.add_argument("volume")
    attach.add_argument("node")
    verbs.add_parser("forget", help="take every volume from whoever has it, and remove it")
    return parser


def _do(asked: argparse.Namespace, hypervisor: Hypervisor) -> None:
    if asked.verb == "create":
        for volume in asked.volumes:
            if hypervisor.find(volume) is None:
                hypervisor.create(Volume(volume, asked.size))
    elif asked.verb == "holders":
        print("".join(f"{node}\n" for node in hypervisor.holders(asked.volume)), end="")
    elif asked.verb == "attach":
        hypervisor.attach(asked.volume, asked.node)
    else:
        _forget(asked, hypervisor)


def _forget(asked: argparse.Namespace, hypervisor: Hypervisor) -> None:
    """Guests unmount what they have mounted, and lose the driver's socket; then the disks go."""
    if isinstance(hypervisor, Libvirt):
        for node in hypervisor.running():
            opened.commands(asked, node).forget()
    for volume in hypervisor.all():
        for node in hypervisor.holders(volume):
            hypervisor.detach(volume, node)
        hypervisor.delete(volume)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
