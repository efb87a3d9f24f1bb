"""One file per fault: one harm and its exact inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    "FAULTS",
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


@dataclass(frozen=True)
class Registered:
    """A fault, and how those are found that a machine shows by the names of what they leave on it."""

    fault: Callable[..., Fault]
    name: str
    found_on: Callable[[Shell], Sequence[Fault]] = lambda _machine: ()


FAULTS: Sequence[Registered] = (
    Registered(Freeze, Freeze.name),
    Registered(LinkDown, LinkDown.name),
    Registered(Partition, Partition.name, partitions_on),
    Registered(PowerOff, PowerOff.name),
    Registered(Reset, Reset.name),
    Registered(Shutdown, Shutdown.name),
    Registered(Swap, Swap.name, swaps_on),
    Registered(KubeletSettings, KubeletSettings.name, kubelet_settings_on),
)
"""Every fault that a ledger can hold."""
_BY_NAME: Mapping[str, Callable[..., Fault]] = {entry.name: entry.fault for entry in FAULTS}


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """Make a fault from a ledger entry's constructor data. Raises KeyError when it names none."""
    arguments = {key: value for key, value in data.items() if key != "fault"}
    return _BY_NAME[data["fault"]](**arguments)


def faults_on(machine: Shell) -> list[Fault]:
    """The faults that a machine shows by the names of what they leave on it. Raises MachineError."""
    return [fault for entry in FAULTS for fault in entry.found_on(machine)]
