"""How virtual machines end, as libvirt tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_EVENT = re.compile(r"event 'lifecycle' for domain '(?P<domain>[^']+)': (?P<what>\w+) (?P<why>.+)")
_CALLED = {
    ("Crashed", "Panicked"): "panicked",
    ("Stopped", "Shutdown"): "powered itself off",
    ("Stopped", "Failed"): "lost its QEMU",
}


_PANIC = "Kernel panic"


def last_words(console: str, count: int) -> str:
    """What a guest said last: so many lines from its panic on, or the last ones of all."""
    lines = console.splitlines()
    panic = next((at for at, line in enumerate(lines) if _PANIC in line), None)
    return "\n".join(lines[-count:] if panic is None else lines[panic : panic + count])


@dataclass(frozen=True)
class End:
    """A virtual machine's end, in a word or two that follow its name."""

    domain: str
    how: str


def end_in(line: str) -> End | None:
    """The end that a line of `virsh event --event lifecycle` tells of; None when it tells of something else.

    That a guest was destroyed or saved is the hypervisor's own doing, and no end of the guest's.
    """
    found = _EVENT.fullmatch(line.strip())
    how = _CALLED.get((found["what"], found["why"].strip())) if found else None
    return End(found["domain"], how) if found and how else None
