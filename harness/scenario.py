"""What a scenario is written with: one import for those who write their own.

from harness.scenario import claims, condition_became, needs, windows
"""

from __future__ import annotations

import uuid

import pytest

from harness.checks.checks import default_of, renewals_of, shown_throughout
from harness.checks.moments import (
    condition_became,
    conditions_changed,
    cordoned,
    event_reported,
    last_heartbeat,
    pod_bound,
    pod_created,
    pod_deletion,
    pod_gone,
    pod_unschedulable,
    taint_added,
    taint_removed,
    uncordoned,
)
from harness.faults import Fault, Freeze, LinkDown, Partition, PowerOff, Reset, Shutdown, Swap
from harness.faults.partition import Direction
from harness.labs.stage import STATUS, Stage
from harness.model import window as windows
from harness.model.cluster import NOT_READY, UNREACHABLE

claims = pytest.mark.claims
needs = pytest.mark.needs


def partition(node: str, direction: Direction = "both") -> Partition:
    """A new partition between a node and the control plane."""
    return Partition(uuid.uuid4().hex[:8], node, direction)


def power_off(node: str) -> PowerOff:
    """A new power-off of a node."""
    return PowerOff(uuid.uuid4().hex[:8], node)


def link_down(node: str) -> LinkDown:
    """A new pull of a node's `data` cable; needs the capability `link`."""
    return LinkDown(uuid.uuid4().hex[:8], node)


def freeze(node: str) -> Freeze:
    """A new standstill of a node; needs the capability `freeze`."""
    return Freeze(uuid.uuid4().hex[:8], node)


def reset(node: str) -> Reset:
    """A new reset of a node, which boots when the fault's context ends; needs the capability `reset`."""
    return Reset(uuid.uuid4().hex[:8], node)


def shutdown(node: str) -> Shutdown:
    """A new shutdown of a node by its own systemd; needs the capability `systemd`."""
    return Shutdown(uuid.uuid4().hex[:8], node)


def swap(node: str, size_mib: int = 128) -> Swap:
    """New swap space of so many MiB on a node; needs the capability `swap`."""
    return Swap(uuid.uuid4().hex[:8], node, size_mib)


__all__ = [
    "NOT_READY",
    "STATUS",
    "UNREACHABLE",
    "Fault",
    "Stage",
    "claims",
    "condition_became",
    "conditions_changed",
    "cordoned",
    "default_of",
    "event_reported",
    "freeze",
    "last_heartbeat",
    "link_down",
    "needs",
    "partition",
    "pod_bound",
    "pod_created",
    "pod_deletion",
    "pod_gone",
    "pod_unschedulable",
    "power_off",
    "renewals_of",
    "reset",
    "shown_throughout",
    "shutdown",
    "swap",
    "taint_added",
    "taint_removed",
    "uncordoned",
    "windows",
]
