"""The hypervisor that a command line names."""

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
    """What the command line asks for cannot be done."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """By what a hypervisor is named, and by what commands run on its machines."""
    add = parser.add_argument
    add("--hypervisor", required=True, metavar="table:DIR|libvirt:URI", help="what has volumes and machines")
    add("--nodes", default="", metavar="A,B", help="machines that a table has; those that it knows stay")
    add("--root", default="/", metavar="DIR", help="what a table's node sees as its /; {node} is its name")
    add("--pool", default="", help="libvirt's storage pool of the volumes")
    add("--shell", default="", metavar="COMMAND", help="what runs a command on a guest; {node} is its name")


def hypervisor(asked: argparse.Namespace) -> Hypervisor:
    """The one that was named. Raises BadCommand."""
    kind, _, where = asked.hypervisor.partition(":")
    if kind == "table" and where:
        return Table(Path(where), filter(None, asked.nodes.split(",")))
    if kind == "libvirt" and where:
        if not asked.pool or not asked.shell:
            raise BadCommand("libvirt needs --pool and --shell (--hypervisor); give both")
        return _libvirt(where, asked.pool)
    raise BadCommand(f"no hypervisor {asked.hypervisor!r} (--hypervisor); give table:DIR or libvirt:URI")


def commands(asked: argparse.Namespace, node: str) -> Commands:
    """A guest, by the shell that was named."""
    return Commands(Remote([word.format(node=node) for word in shlex.split(asked.shell)]), node)


def _libvirt(uri: str, pool: str) -> Libvirt:
    try:
        library: Any = importlib.import_module("libvirt")
    except ImportError as error:
        raise BadCommand(f"no libvirt for this Python (--hypervisor): {error}") from error
    library.registerErrorHandler(lambda *_: None, None)
    return Libvirt(lambda: library.open(uri), pool, library)
