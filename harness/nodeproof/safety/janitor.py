"""The janitor: heals what an earlier run left, known from its ledger or from tags on machines."""

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
    """Heal the open faults of the ledger, and the `armed` ones that it lacks (a ledger may be gone).

    The newest goes first, as a later fault may prevent an earlier one from being healed.

    Args:
        ledger: The ledger of the lab.
        armed: Faults whose dead-man's switch is armed.
        heal: Heals a fault and returns whether a probe proved it.

    Returns:
        The faults that stay open.

    Raises:
        OSError: The ledger cannot be written.
    """
    faults = {str(entry.fault["id"]): entry.fault for entry in ledger.unfinished()}
    for fault in armed:
        faults.setdefault(str(fault["id"]), fault)
    left = []
    for fault in reversed(list(faults.values())):
        if heal(fault):
            ledger.write("closed", fault)
        else:
            left.append(f"{fault.get('fault')} on {fault.get('node', fault.get('path'))} ({fault['id']})")
    return left


def sweep(machine: Callable[[str], Shell], name: str) -> None:
    """Heal leftovers of faults on a machine that no ledger knows. Raises MachineError."""
    for fault in faults_on(machine(name)):
        heal_for_good(fault, machine(fault.node))
