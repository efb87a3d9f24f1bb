"""What a node's systemd keeps of a unit."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.recording.testimony import journal_of
from nodeproof.sources.source import Hearing, Told


@dataclass(frozen=True)
class Journal:
    """What a unit logged on a node in the boot whose clock was kept; needs the feature `systemd`."""

    node: str
    unit: str

    @property
    def by(self) -> str:
        """As moments of a journal call it."""
        return journal_name(self.node, self.unit)

    def read(self, hearing: Hearing) -> Told:
        """Ask journalctl. Raises MachineError."""
        clock, machine = hearing.clock(self.node), hearing.lab.fleet.machine(self.node)
        until_t = time.monotonic()
        words = tuple(journal_of(machine, self.unit, clock))
        return Told(words, until_t, clock.error_s, node=self.node, boot_id=clock.boot_id)
