"""Faults, one per file: each is a disruption and its exact inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.faults.called_off import CalledOff, called_off_on
from nodeproof.faults.clock import Clock, clocks_on
from nodeproof.faults.cloud import Cloud, clouds_on
from nodeproof.faults.fault import Fault, Place
from nodeproof.faults.freeze import Freeze
from nodeproof.faults.huge_pages import HugePages
from nodeproof.faults.kube_proxy import KubeProxy, kube_proxies_on
from nodeproof.faults.kubelet_settings import KubeletSettings, kubelet_settings_on
from nodeproof.faults.labelled import Labelled
from nodeproof.faults.link_down import LinkDown
from nodeproof.faults.node_deleted import NodeDeleted
from nodeproof.faults.other_file import OtherFile, other_files_on
from nodeproof.faults.outage import Outage, outages_on
from nodeproof.faults.partition import Partition, partitions_on
from nodeproof.faults.power_off import PowerOff
from nodeproof.faults.ready_patched import ReadyPatched
from nodeproof.faults.refused import Refused, refused_on
from nodeproof.faults.reset import Reset
from nodeproof.faults.settings import Settings, settings_on
from nodeproof.faults.shutdown import Shutdown
from nodeproof.faults.swap import Swap, swaps_on
from nodeproof.faults.taint import Taint
from nodeproof.faults.unit_down import UnitDown
from nodeproof.faults.unit_up import UnitUp, units_up_on
from nodeproof.faults.volumes import Volumes, volumes_on
from nodeproof.machines.machine import CONTROL_PLANE, Shell

__all__ = [
    "FAULTS",
    "CalledOff",
    "Clock",
    "Cloud",
    "Fault",
    "Freeze",
    "HugePages",
    "KubeProxy",
    "KubeletSettings",
    "Labelled",
    "LinkDown",
    "NodeDeleted",
    "OtherFile",
    "Outage",
    "Partition",
    "PowerOff",
    "ReadyPatched",
    "Refused",
    "Reset",
    "Settings",
    "Shutdown",
    "Swap",
    "Taint",
    "UnitDown",
    "UnitUp",
    "Volumes",
    "fault_from_json",
    "faults_on",
]


@dataclass(frozen=True)
class Registered:
    """A fault type and how its leftovers are recognised on a machine."""

    fault: Callable[..., Fault]
    name: str
    places: Sequence[Place]
    found_on: Callable[[Shell], Sequence[Fault]] = lambda _machine: ()


FAULTS: Sequence[Registered] = (
    Registered(CalledOff, CalledOff.name, CalledOff.places, called_off_on),
    Registered(Clock, Clock.name, Clock.places, clocks_on),
    Registered(Cloud, Cloud.name, Cloud.places, clouds_on),
    Registered(Freeze, Freeze.name, Freeze.places),
    Registered(HugePages, HugePages.name, HugePages.places),
    Registered(KubeProxy, KubeProxy.name, KubeProxy.places, kube_proxies_on),
    Registered(Labelled, Labelled.name, Labelled.places),
    Registered(LinkDown, LinkDown.name, LinkDown.places),
    Registered(NodeDeleted, NodeDeleted.name, NodeDeleted.places),
    Registered(Outage, Outage.name, Outage.places, outages_on),
    Registered(OtherFile, OtherFile.name, OtherFile.places, other_files_on),
    Registered(Partition, Partition.name, Partition.places, partitions_on),
    Registered(PowerOff, PowerOff.name, PowerOff.places),
    Registered(ReadyPatched, ReadyPatched.name, ReadyPatched.places),
    Registered(Refused, Refused.name, Refused.places, refused_on),
    Registered(Reset, Reset.name, Reset.places),
    Registered(Settings, Settings.name, Settings.places, settings_on),
    Registered(Shutdown, Shutdown.name, Shutdown.places),
    Registered(Swap, Swap.name, Swap.places, swaps_on),
    Registered(Taint, Taint.name, Taint.places),
    Registered(UnitDown, UnitDown.name, UnitDown.places),
    Registered(UnitUp, UnitUp.name, UnitUp.places, units_up_on),
    Registered(Volumes, Volumes.name, Volumes.places, volumes_on),
    Registered(KubeletSettings, KubeletSettings.name, KubeletSettings.places, kubelet_settings_on),
)
"""Every fault type that a ledger may contain."""
_BY_NAME: Mapping[str, Callable[..., Fault]] = {entry.name: entry.fault for entry in FAULTS}


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """Construct a fault from the data of a ledger entry. Raises KeyError for an unknown fault name."""
    arguments = {key: value for key, value in data.items() if key != "fault"}
    return _BY_NAME[data["fault"]](**arguments)


def faults_on(machine: Shell) -> list[Fault]:
    """Return the faults whose named leftovers are on a machine. Raises MachineError."""
    is_node = machine.name != CONTROL_PLANE
    candidates = (entry for entry in FAULTS if ("node" in entry.places) is is_node)
    return [fault for entry in candidates for fault in entry.found_on(machine)]
