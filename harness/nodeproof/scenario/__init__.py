"""What a scenario is written with: one import for those who write their own.

from nodeproof.scenario import claims, condition_became, needs, windows
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

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
from nodeproof.scenario.evidence import INHIBITORS, SWAP_LIMIT
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
    "STATUS",
    "SWAP_LIMIT",
    "UNREACHABLE",
    "UNSCHEDULABLE",
    "Fault",
    "Stage",
    "Witness",
    "amounts_to",
    "became",
    "boot_id_changed",
    "changed",
    "claims",
    "condition_became",
    "condition_said",
    "conditions_changed",
    "cordoned",
    "default_of",
    "event_reported",
    "freeze",
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
    "needs",
    "not_listed",
    "partition",
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
    "shown_throughout",
    "shutdown",
    "sigterm",
    "swap",
    "taint_added",
    "taint_removed",
    "uncordoned",
    "windows",
    "written",
]
