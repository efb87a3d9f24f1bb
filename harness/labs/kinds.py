"""The kinds of lab that can be started, and what each can do."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model.problem import Problem

PROCESS, LIBVIRT = "process", "libvirt"
CAPABILITIES: Mapping[str, frozenset[str]] = {
    PROCESS: frozenset({"freeze", "link", "power", "reset"}),
    LIBVIRT: frozenset({"freeze", "link", "power", "real-pods", "reset", "swap", "systemd"}),
}
"""What scenarios may ask for, by kind."""
LAB_KINDS = tuple(CAPABILITIES)


def check_kind(kind: str) -> None:
    """Refuse a kind of lab that there is none of. Raises Problem."""
    if kind not in CAPABILITIES:
        raise Problem(f"unknown lab {kind!r}", "--lab", f"choose: {', '.join(LAB_KINDS)}")
