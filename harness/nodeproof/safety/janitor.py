"""The janitor: heals what an earlier run left, whether its ledger tells of it or only its tags do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeproof.faults import faults_on
from nodeproof.faults.fence import heal_for_good
from nodeproof.machines.machine import Shell
from nodeproof.safety.ledger import Ledger

Json = Any


def heal_unfinished(
    ledger: Ledger, armed: Sequence[Mapping[str, Json]], heal: Callable[[Mapping[str, Json]], bool]
) -> list[str]:
    """Heal what the ledger holds open, and what was `armed` and is missing there (a ledger may be gone).

    The newest goes first, as a later fault may keep an earlier one from being healed. `heal` says whether a
    probe proved it. Gives what stays open. Raises OSError when the ledger can't be written.
    """
    found = {str(entry.fault["id"]): entry.fault for entry in ledger.unfinished()}
    for fault in armed:
        found.setdefault(str(fault["id"]), fault)
    left = []
    for fault in reversed(list(found.values())):
        if heal(fault):
            ledger.write("closed", fault)
        else:
            left.append(f"{fault.get('fault')} on {fault.get('node', fault.get('path'))} ({fault['id']})")
    return left


def sweep(machine: Callable[[str], Shell], name: str) -> None:
    """Heal what faults left on a machine and nobody knows of any more. Raises MachineError."""
    for fault in faults_on(machine(name)):
        heal_for_good(fault, machine(fault.node))
