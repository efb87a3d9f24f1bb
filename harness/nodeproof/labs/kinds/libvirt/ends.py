"""How virtual machines end, according to libvirt's events."""

from __future__ import annotations

from dataclasses import dataclass

# virDomainEventType and its details in libvirt's include/libvirt/libvirt-domain.h
_STOPPED, _CRASHED = 5, 8
_CALLED = {
    (_CRASHED, 0): "panicked",
    (_STOPPED, 0): "powered itself off",
    (_STOPPED, 5): "lost its QEMU",
}


@dataclass(frozen=True)
class End:
    """The end of a virtual machine; `how` completes a sentence that starts with its name."""

    domain: str
    how: str


def end_of(domain: str, event: int, detail: int) -> End | None:
    """Return the end that a lifecycle event of libvirt reports; None for other events.

    A guest that was destroyed or saved did not end by itself: the hypervisor did that.
    """
    how = _CALLED.get((event, detail))
    return End(domain, how) if how else None
