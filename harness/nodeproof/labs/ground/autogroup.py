"""Which session comes first on a busy host: the harness, then labs, then machines.

Linux gives each session its share of the processors (sched(7), "The autogroup feature"). A lab's session is
busy and a harness's mostly idle, and an idle one that wakes may have to wait for up to a second then
(docs/findings.md): evidence comes late, and so do controllers. A session that is nicer gives way at once.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

HARNESS = -8
"""A worker's session. It and its labs come before other programs: a lab that has the same share of the
processors as a program that takes all it can get is late, and verdicts are unproven.
"""
LAB = 4
"""How much nicer than its harness's a lab's session is: as measured 1 changes nothing, and 2 is enough."""
STARTING = 7
"""A lab's until it is up: labs of a run start while scenarios in others are timed already."""
MACHINE = 8
"""A virtual machine's: labs come first, whose controllers have to be in time."""
_NICE = re.compile(r"nice (-?\d+)")


def nice_of(process: int | str = "self") -> int:
    """Give how nice the session of a process is; 0 on a host without autogroups."""
    with contextlib.suppress(OSError):
        match = _NICE.search(Path(f"/proc/{process}/autogroup").read_text())
        return int(match[1]) if match else 0
    return 0


def set_nice(nice: int, process: int | str = "self") -> None:
    """Make the session of a process so nice; a host without autogroups is left as it is."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


if __name__ == "__main__":
    set_nice(int(sys.argv[1]), int(sys.argv[2]))
