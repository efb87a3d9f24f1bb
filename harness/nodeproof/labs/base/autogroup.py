"""Priorities of sessions on a busy host: the harness first, then labs, then virtual machines.

Linux gives each session its share of the processors (sched(7), "The autogroup feature"). A lab's session is
busy and a harness's mostly idle; an idle session that wakes may wait for up to a second
(docs/findings/idle-session-waits.md), which delays evidence and controllers. A session with a higher nice
value yields at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HARNESS = -8
"""The nice value of a worker's session, which has priority over other programs, as have its labs: at the same
priority as a program that uses all processors, a lab is late and verdicts are unproven.
"""
LAB = 4
"""The nice value of a lab's session above its harness's: measured, 1 has no effect and 2 is enough."""
STARTING = 7
"""The same until the lab is up: other labs of the run may already be measuring."""
MACHINE = 8
"""The same for a virtual machine's session: labs come first, as their controllers must be in time."""
JUDGING = 12
"""The same for a worker that judges, which takes a processor for a second: other labs come first."""
_NICE = re.compile(r"nice (-?\d+)")


def nice_of(process: int | str = "self") -> int:
    """Return the nice value of a process's session; 0 on a host without autogroups."""
    with contextlib.suppress(OSError):
        match = _NICE.search(Path(f"/proc/{process}/autogroup").read_text())
        return int(match[1]) if match else 0
    return 0


def set_nice(nice: int, process: int | str = "self") -> None:
    """Set the nice value of a process's session; do nothing on a host without autogroups."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


@contextlib.contextmanager
def lowered(by: int) -> Iterator[None]:
    """Lower the priority of this process's session; do nothing for a user who could not restore it."""
    if os.geteuid() != 0:
        yield
        return
    nice = nice_of()
    set_nice(nice + by)
    try:
        yield
    finally:
        set_nice(nice)


if __name__ == "__main__":
    set_nice(int(sys.argv[1]), int(sys.argv[2]))
