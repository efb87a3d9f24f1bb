"""Faults: each is a disruption and its exact inverse.

Every module of this package is imported, so that a new fault is registered by its file alone.
"""

from __future__ import annotations

import importlib
import pkgutil

from nodeproof.faults.fault import FAULTS, Fault
from nodeproof.machines.machine import CONTROL_PLANE, Shell

__all__ = ["FAULTS", "Fault", "faults_on"]

# Leftovers are healed in this order: a pending shutdown first, as it ends the machine.
for _name in sorted(
    (module.name for module in pkgutil.iter_modules(__path__)), key=lambda name: name != "shutdown"
):
    importlib.import_module(f"{__name__}.{_name}")


def faults_on(machine: Shell) -> list[Fault]:
    """Return the faults whose named leftovers are on a machine. Raises MachineError."""
    is_node = machine.name != CONTROL_PLANE
    candidates = [fault for fault in FAULTS.values() if ("node" in fault.places) is is_node]
    return [leftover for fault in candidates for leftover in fault.leftovers_on(machine)]
