"""The kinds of lab that can be started, and the features of each."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model.problem import Problem

PROCESS, LIBVIRT = "process", "libvirt"
KIND_FEATURES: Mapping[str, frozenset[str]] = {
    PROCESS: frozenset({"freeze", "link", "power", "reset"}),
    LIBVIRT: frozenset({"freeze", "link", "power", "real-pods", "reset", "swap", "systemd"}),
}
"""What a lab of a kind has; the living lab is asked, too (`Lab.features`)."""
LAB_KINDS = tuple(KIND_FEATURES)


def check_kind(kind: str) -> None:
    """Refuse a kind of lab that there is none of. Raises Problem."""
    if kind not in KIND_FEATURES:
        raise Problem(f"unknown lab {kind!r}", "--lab", f"choose: {', '.join(LAB_KINDS)}")
