"""Open the hypervisor that a command line names."""

from __future__ import annotations

import argparse
import importlib
import shlex
from pathlib import Path
from typing import Any

from infra.csi.guests import Libvirt
from infra.csi.hypervisor import Hypervisor
from infra.csi.machine import Commands, Remote
from infra.csi.table import Table


class BadCommand(Exception):
    """A command line that cannot be carried out."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a hypervisor and say how commands run on its machines."""
    add = parser.add_argument
    add(
        "--hypervisor",
        required=True,
        metavar="table:DIR|libvirt:URI",
        help="the hypervisor of volumes and machines",
    )
    add("--nodes", default="", metavar="A,B", help="machines to add to a table")
    add("--root", default="/", metavar="DIR", help="root folder of a table's node; {node} is its name")
    add("--pool", default="", help="libvirt's storage pool of the volumes")
    add("--shell", default="", metavar="COMMAND", help="command prefix for a guest; {node} is its name")


def hypervisor(options: argparse.Namespace) -> Hypervisor:
    """Open the hypervisor of the options. Raises BadCommand."""
    kind, _, address = options.hypervisor.partition(":")
    if kind == "table" and address:
        return Table(Path(address), filter(None, options.nodes.split(",")))
    if kind == "libvirt" and address:
        if not options.pool or not options.shell:
            raise BadCommand("libvirt needs --pool and --shell (--hypervisor); give both")
        return _libvirt(address, options.pool)
    raise BadCommand(f"no hypervisor {options.hypervisor!r} (--hypervisor); give table:DIR or libvirt:URI")


def commands(options: argparse.Namespace, node: str) -> Commands:
    """Return a guest, reached by the shell of the options."""
    return Commands(Remote([word.format(node=node) for word in shlex.split(options.shell)]), node)


def _libvirt(uri: str, pool: str) -> Libvirt:
    try:
        library: Any = importlib.import_module("libvirt")
    except ImportError as error:
        raise BadCommand(f"no libvirt for this Python (--hypervisor): {error}") from error
    library.registerErrorHandler(lambda *_: None, None)
    return Libvirt(lambda: library.open(uri), pool, library)
