"""How much of a busy host a lab takes beside the harness that watches it.

Linux gives each session its share of the processors (sched(7), "The autogroup feature"). A lab's session is
busy and a harness's mostly idle, and an idle one that wakes may be let wait for up to a second then
(docs/findings.md): evidence comes late, and so do controllers. A session that is nicer gives way at once.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

LAB = 4
"""A lab's session beside a harness's: as measured 1 changes nothing, and 2 is enough."""
STARTING = 7
"""A lab's until it is up: labs of a run start while scenarios in others are timed already."""
MACHINE = 8
"""A virtual machine's beside those of labs, whose controllers are to be in time."""


def give_way(nice: int, process: int | str = "self") -> None:
    """Make the session of a process so nice; a host without autogroups is left as it is."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))
