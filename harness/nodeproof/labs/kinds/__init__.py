"""The kinds of lab. To add one, write an object in its own file and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.libvirt.kind import LIBVIRT
from nodeproof.labs.kinds.process.kind import PROCESS
from nodeproof.labs.kinds.vagrant.kind import VAGRANT
from nodeproof.model.problem import Problem

__all__ = ["DEFAULT_KIND", "KINDS", "LIBVIRT", "PROCESS", "VAGRANT", "kind_named"]
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (PROCESS, LIBVIRT, VAGRANT)}
DEFAULT_KIND = PROCESS


def kind_named(name: str) -> Kind:
    """Return a kind by name. Raises Problem if there is none."""
    if name not in KINDS:
        raise Problem(f"unknown lab {name!r}", "--lab", f"choose: {', '.join(KINDS)}")
    return KINDS[name]
