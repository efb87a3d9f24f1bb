"""The janitor: heals what an earlier run left, whether its ledger tells of it or only its tags do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.faults.fault import COMMAND_LIMIT_S
from harness.machines.machine import MachineError, Shell
from harness.safety.ledger import Ledger

Json = Any
_FAULTS_TABLE = re.compile(r"^table inet (nodeproof_[0-9a-f]{8})$", re.MULTILINE)
"""A fault's table carries the fault's id; what a node has by itself (`nodeproof_track`) does not match."""


def heal_unfinished(
    ledger: Ledger, armed: Sequence[Mapping[str, Json]], heal: Callable[[Mapping[str, Json]], bool]
) -> list[str]:
    """Heal what the ledger holds open, and what was `armed` and is missing there (a ledger may be gone).

    The newest goes first, as a later fault may keep an earlier one from being healed. `heal` says whether a
    probe proved it. Gives what stays open. Raises OSError when the ledger can't be written.
    """
    found = {str(fault["id"]): fault for fault in armed}
    found |= {str(entry.fault["id"]): entry.fault for entry in ledger.unfinished()}
    left = []
    for fault in reversed(list(found.values())):
        if heal(fault):
            ledger.write("closed", fault)
        else:
            left.append(f"{fault['fault']} on {fault['node']} ({fault['id']})")
    return left


def sweep_tables(machine: Shell) -> list[str]:
    """Delete the nft tables that faults left on a machine and nobody knows of any more; gives their names.

    Raises MachineError.
    """
    listed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S).stdout
    tables = _FAULTS_TABLE.findall(listed)
    if tables:
        script = "".join(f"delete table inet {table}\n" for table in tables)
        done = machine.run(["nft", "-f", "-"], deadline_s=COMMAND_LIMIT_S, stdin=script)
        if done.status != 0:
            raise MachineError(f"{machine.name}: nft: {done.stderr.strip()}")
    return tables
