"""Messages of a unit in a node's systemd journal."""

from __future__ import annotations

from dataclasses import dataclass

from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.sources.loss import read_journal
from nodeproof.sources.source import Hearing, Told


@dataclass(frozen=True)
class Journal:
    """Messages of a unit on a node in the boot whose clock was stored; needs the feature `systemd`."""

    node: str
    unit: str

    @property
    def by(self) -> str:
        """Name of the source in moments."""
        return journal_name(self.node, self.unit)

    def read(self, hearing: Hearing) -> Told:
        """Read the messages with journalctl.

        Raises:
            MachineError: The journal cannot be read.
        """
        return read_journal(hearing, self.node, self.unit, hearing.clock(self.node))
