"""Faults: each is a disruption and its exact inverse.

Every module of this package is imported, so that a new fault is registered by its file alone. So is every
entry point of the group `nodeproof.faults`: each process that decodes a fault imports this package.
"""

from __future__ import annotations

import importlib
import pkgutil

from nodeproof.entry_points import load_plugins
from nodeproof.faults.fault import FAULTS, Fault
from nodeproof.machines.machine import CONTROL_PLANE, Shell
from nodeproof.model.needs import role_of

__all__ = ["FAULTS", "PLUGINS", "Fault", "classes_for", "plugin_errors"]

# Leftovers are healed in this order: a pending shutdown (of `units`) first, as it ends the machine.
for _name in ("units", *(module.name for module in pkgutil.iter_modules(__path__))):
    importlib.import_module(f"{__name__}.{_name}")


def classes_for(machine: Shell) -> list[type[Fault]]:
    """Return the faults that such a machine may have, those of plugins last."""
    if machine.name != role_of(machine.name) == CONTROL_PLANE:
        return [fault for fault in FAULTS.values() if "plane" in fault.places]
    is_node = machine.name != CONTROL_PLANE
    return [fault for fault in FAULTS.values() if ("node" in fault.places) is is_node]


def plugin_errors() -> list[str]:
    """Return a line about each plugin with faults that was not loaded."""
    return [str(plugin) for plugin in PLUGINS if plugin.error]


# Last, because a plugin imports this package.
PLUGINS = load_plugins("nodeproof.faults", FAULTS)
"""The plugins with faults, loaded or not."""
