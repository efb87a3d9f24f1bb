"""One file per fault: one harm and its exact inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodeproof.faults.fault import Fault
from nodeproof.faults.freeze import Freeze
from nodeproof.faults.kubelet_settings import KubeletSettings, kubelet_settings_on
from nodeproof.faults.link_down import LinkDown
from nodeproof.faults.partition import Partition, partitions_on
from nodeproof.faults.power_off import PowerOff
from nodeproof.faults.reset import Reset
from nodeproof.faults.shutdown import Shutdown
from nodeproof.faults.swap import Swap, swaps_on
from nodeproof.machines.machine import Shell

__all__ = [
    "Fault",
    "Freeze",
    "KubeletSettings",
    "LinkDown",
    "Partition",
    "PowerOff",
    "Reset",
    "Shutdown",
    "Swap",
    "fault_from_json",
    "faults_on",
]

_BY_NAME: Mapping[str, Callable[..., Fault]] = {
    "freeze": Freeze,
    "kubelet-settings": KubeletSettings,
    "link-down": LinkDown,
    "partition": Partition,
    "power-off": PowerOff,
    "reset": Reset,
    "shutdown": Shutdown,
    "swap": Swap,
}


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """Make a fault from a ledger entry's constructor data. Raises KeyError when it names none."""
    arguments = {key: value for key, value in data.items() if key != "fault"}
    return _BY_NAME[data["fault"]](**arguments)


def faults_on(machine: Shell) -> list[Fault]:
    """The faults that a machine shows by the names of what they leave on it. Raises MachineError."""
    return [fault for find in (partitions_on, swaps_on, kubelet_settings_on) for fault in find(machine)]
