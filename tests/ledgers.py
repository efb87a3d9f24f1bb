"""The file of a lab's ledger."""

from __future__ import annotations

from pathlib import Path

from nodeproof.safety.ledger import FaultLedger, Ledger


def file_of(ledger: FaultLedger) -> Path:
    """Return the file of a ledger that is one."""
    assert isinstance(ledger, Ledger)
    return ledger.path
