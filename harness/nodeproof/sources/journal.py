"""What a node's systemd keeps of a unit."""

from __future__ import annotations

from dataclasses import dataclass

from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.sources.loss import read_journal
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
        return read_journal(hearing, self.node, self.unit, hearing.clock(self.node))
