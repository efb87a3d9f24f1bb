"""The kinds of lab that can be started. A new one is an object in a file of its own, and a line here."""

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
    """Look a kind up. Raises Problem when there is none of that name."""
    if name not in KINDS:
        raise Problem(f"unknown lab {name!r}", "--lab", f"choose: {', '.join(KINDS)}")
    return KINDS[name]
