"""How virtual machines end, as libvirt tells it."""

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
    """A virtual machine's end, in a word or two that follow its name."""

    domain: str
    how: str


def end_of(domain: str, event: int, detail: int) -> End | None:
    """The end that a lifecycle event of libvirt's tells of; None when it tells of something else.

    That a guest was destroyed or saved is the hypervisor's own doing, and no end of the guest's.
    """
    how = _CALLED.get((event, detail))
    return End(domain, how) if how else None
