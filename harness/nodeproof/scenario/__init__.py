"""What a scenario is written with: one import for those who write their own.

from nodeproof.scenario import claims, condition_became, needs, windows
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from nodeproof.actions.ask import User, ask, kubelet_of, would
from nodeproof.actions.credential import OwnCredential
from nodeproof.actions.exits import try_flags
from nodeproof.actions.join import join
from nodeproof.actions.kubectl import kubectl
from nodeproof.actions.kubelet import restart_kubelet
from nodeproof.actions.nodes import keep_alive, make_node
from nodeproof.actions.pods import pending_pod, run_pod, run_witnesses
from nodeproof.actions.workloads import disruption_budget, own_namespace, service, workload
from nodeproof.checks.checks import default_of, renewals_of
from nodeproof.checks.counting import counted
from nodeproof.checks.looks import amounts_to, listed, lives_on, not_listed, shown_throughout
from nodeproof.checks.moments import (
    became,
    boot_id_changed,
    changed,
    condition_became,
    condition_said,
    conditions_changed,
    cordoned,
    event_reported,
    last_heartbeat,
    made,
    pod_bound,
    pod_created,
    pod_deletion,
    pod_gone,
    pod_marked,
    pod_unschedulable,
    recording_began,
    removed,
    taint_added,
    taint_removed,
    uncordoned,
    written,
)
from nodeproof.checks.observations import grew, same_as, shows
from nodeproof.checks.witnessed import (
    booted,
    kubelet_restarted,
    last_sign,
    logged,
    machine_ended,
    pre_stop_began,
    pre_stop_ended,
    sigterm,
)
from nodeproof.cluster.witness import Witness
from nodeproof.faults import (
    CalledOff,
    Fault,
    Freeze,
    KubeletSettings,
    LinkDown,
    NodeDeleted,
    OtherFile,
    Outage,
    Partition,
    PowerOff,
    ReadyPatched,
    Refused,
    Reset,
    Settings,
    Shutdown,
    Swap,
    Taint,
    UnitDown,
)
from nodeproof.faults.partition import Direction
from nodeproof.faults.refused import What
from nodeproof.faults.unit_down import KUBELET
from nodeproof.labs.client.fleet import NodeInfo
from nodeproof.model import window as windows
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from nodeproof.model.pattern import PRESENT
from nodeproof.probes.cgroup import SWAP_LIMIT, cgroup_file, swap_limit
from nodeproof.probes.configz import kubelet_field
from nodeproof.probes.dbus import dbus_property
from nodeproof.probes.field import field_of
from nodeproof.probes.file import file_of
from nodeproof.probes.inhibitors import INHIBITORS, inhibitors
from nodeproof.probes.meminfo import meminfo
from nodeproof.probes.metric import metric
from nodeproof.scenario.stage import STATUS, Stage
from nodeproof.sources.audit import Audit, audit
from nodeproof.sources.journal import Journal
from nodeproof.sources.log import Log

claims = pytest.mark.claims
needs = pytest.mark.needs


def partition(node: str, direction: Direction = "both") -> Partition:
    """A new partition between a node and the control plane."""
    return Partition(uuid.uuid4().hex[:8], node, direction)


def power_off(node: str) -> PowerOff:
    """A new power-off of a node."""
    return PowerOff(uuid.uuid4().hex[:8], node)


def link_down(node: str) -> LinkDown:
    """A new pull of a node's `data` cable; needs the feature `link`."""
    return LinkDown(uuid.uuid4().hex[:8], node)


def freeze(node: str) -> Freeze:
    """A new standstill of a node; needs the feature `freeze`."""
    return Freeze(uuid.uuid4().hex[:8], node)


def reset(node: str) -> Reset:
    """A new reset of a node, which boots when the fault's context ends; needs the feature `reset`."""
    return Reset(uuid.uuid4().hex[:8], node)


def shutdown(node: str) -> Shutdown:
    """A new shutdown of a node by its own systemd; needs the feature `systemd`."""
    return Shutdown(uuid.uuid4().hex[:8], node)


def called_off_shutdown(node: str) -> CalledOff:
    """A new shutdown of a node whose last step is refused: pods end, the machine stays; needs `systemd`."""
    return CalledOff(uuid.uuid4().hex[:8], node)


def swap(node: str, size_mib: int = 128) -> Swap:
    """New swap space of so many MiB on a node; needs the feature `swap`."""
    return Swap(uuid.uuid4().hex[:8], node, size_mib)


def unit_down(node: str, unit: str = KUBELET) -> UnitDown:
    """A new stop of a node's unit; any but the kubelet's needs the feature `systemd`."""
    return UnitDown(uuid.uuid4().hex[:8], node, unit)


def other_file(node: str, path: str, content: str) -> OtherFile:
    """A new file of a node with other content; what was there is put back."""
    return OtherFile(uuid.uuid4().hex[:8], node, path, content)


def outage(*nodes: NodeInfo) -> Outage:
    """A new cut of all these nodes (`lab.nodes()`) from the control plane, at one instant."""
    return Outage(uuid.uuid4().hex[:8], {node.name: node.data_address for node in nodes})


def node_deleted(node: str, labels: Mapping[str, str]) -> NodeDeleted:
    """A new deletion of a node's Node, which is given back with these labels."""
    return NodeDeleted(uuid.uuid4().hex[:8], node, labels)


def settings(component: str, **flags: str) -> Settings:
    """Other flags of a component of the control plane, an underscore for each dash; it has to be declared:
    `needs(components=...)`.
    """
    return Settings(uuid.uuid4().hex[:8], component, {name.replace("_", "-"): flags[name] for name in flags})


def taint(node: str, key: str, effect: str, value: str = "nodeproof") -> Taint:
    """A new taint of a node, as an administrator's."""
    return Taint(uuid.uuid4().hex[:8], node, key, value, effect)


def refused(node: str, what: What) -> Refused:
    """A new refusal of a node's updates: of its `status`, or of its `lease`."""
    return Refused(uuid.uuid4().hex[:8], node, what)


def ready_patched(node: str) -> ReadyPatched:
    """A new PATCH of a node's Ready to False, which its kubelet can't put right; the node itself is well."""
    return ReadyPatched(uuid.uuid4().hex[:8], node)


def kubelet_settings(node: str, **settings: Any) -> KubeletSettings:
    """Other settings of a node's kubelet, fields of KubeletConfiguration."""
    return KubeletSettings(uuid.uuid4().hex[:8], node, settings)


__all__ = [
    "INHIBITORS",
    "NOT_READY",
    "PRESENT",
    "STATUS",
    "SWAP_LIMIT",
    "UNREACHABLE",
    "UNSCHEDULABLE",
    "Audit",
    "Fault",
    "Journal",
    "Log",
    "OwnCredential",
    "Stage",
    "User",
    "Witness",
    "amounts_to",
    "ask",
    "audit",
    "became",
    "boot_id_changed",
    "booted",
    "called_off_shutdown",
    "cgroup_file",
    "changed",
    "claims",
    "condition_became",
    "condition_said",
    "conditions_changed",
    "cordoned",
    "counted",
    "dbus_property",
    "default_of",
    "disruption_budget",
    "event_reported",
    "field_of",
    "file_of",
    "freeze",
    "grew",
    "inhibitors",
    "join",
    "keep_alive",
    "kubectl",
    "kubelet_field",
    "kubelet_of",
    "kubelet_restarted",
    "kubelet_settings",
    "last_heartbeat",
    "last_sign",
    "link_down",
    "listed",
    "lives_on",
    "logged",
    "machine_ended",
    "made",
    "make_node",
    "meminfo",
    "metric",
    "needs",
    "node_deleted",
    "not_listed",
    "other_file",
    "outage",
    "own_namespace",
    "partition",
    "pending_pod",
    "pod_bound",
    "pod_created",
    "pod_deletion",
    "pod_gone",
    "pod_marked",
    "pod_unschedulable",
    "power_off",
    "pre_stop_began",
    "pre_stop_ended",
    "ready_patched",
    "recording_began",
    "refused",
    "removed",
    "renewals_of",
    "reset",
    "restart_kubelet",
    "run_pod",
    "run_witnesses",
    "same_as",
    "service",
    "settings",
    "shown_throughout",
    "shows",
    "shutdown",
    "sigterm",
    "swap",
    "swap_limit",
    "taint",
    "taint_added",
    "taint_removed",
    "try_flags",
    "uncordoned",
    "unit_down",
    "windows",
    "workload",
    "would",
    "written",
]
