"""What a scenario is written with: one import for those who write their own.

from nodeproof.scenario import claims, condition_became, needs, windows
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from nodeproof.actions.ask import User, ask, kubelet_of, would
from nodeproof.actions.kubectl import kubectl
from nodeproof.actions.kubelet import restart_kubelet
from nodeproof.actions.pods import pending_pod, run_pod, run_witnesses
from nodeproof.checks.checks import default_of, renewals_of
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
    removed,
    taint_added,
    taint_removed,
    uncordoned,
    written,
)
from nodeproof.checks.observations import grew, same_as, shows
from nodeproof.checks.witnessed import (
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
    Fault,
    Freeze,
    KubeletSettings,
    LinkDown,
    Partition,
    PowerOff,
    Reset,
    Shutdown,
    Swap,
)
from nodeproof.faults.partition import Direction
from nodeproof.model import window as windows
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from nodeproof.model.pattern import PRESENT
from nodeproof.probes.cgroup import SWAP_LIMIT, cgroup_file, swap_limit
from nodeproof.probes.configz import kubelet_field
from nodeproof.probes.field import field_of
from nodeproof.probes.file import file_of
from nodeproof.probes.inhibitors import INHIBITORS, inhibitors
from nodeproof.probes.metric import metric
from nodeproof.scenario.evidence import Journal
from nodeproof.scenario.stage import STATUS, Stage

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


def swap(node: str, size_mib: int = 128) -> Swap:
    """New swap space of so many MiB on a node; needs the feature `swap`."""
    return Swap(uuid.uuid4().hex[:8], node, size_mib)


def kubelet_settings(node: str, **settings: Any) -> KubeletSettings:
    """Other settings of a node's kubelet, fields of KubeletConfiguration; needs the feature `systemd`."""
    return KubeletSettings(uuid.uuid4().hex[:8], node, settings)


__all__ = [
    "INHIBITORS",
    "NOT_READY",
    "PRESENT",
    "STATUS",
    "SWAP_LIMIT",
    "UNREACHABLE",
    "UNSCHEDULABLE",
    "Fault",
    "Journal",
    "Stage",
    "User",
    "Witness",
    "amounts_to",
    "ask",
    "became",
    "boot_id_changed",
    "cgroup_file",
    "changed",
    "claims",
    "condition_became",
    "condition_said",
    "conditions_changed",
    "cordoned",
    "default_of",
    "event_reported",
    "field_of",
    "file_of",
    "freeze",
    "grew",
    "inhibitors",
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
    "metric",
    "needs",
    "not_listed",
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
    "removed",
    "renewals_of",
    "reset",
    "restart_kubelet",
    "run_pod",
    "run_witnesses",
    "same_as",
    "shown_throughout",
    "shows",
    "shutdown",
    "sigterm",
    "swap",
    "swap_limit",
    "taint_added",
    "taint_removed",
    "uncordoned",
    "windows",
    "would",
    "written",
]
