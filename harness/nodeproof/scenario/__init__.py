"""The vocabulary of scenarios, for a single import.

from nodeproof.scenario import claims, condition_became, needs, windows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodeproof.actions.ask import User, ask, kubelet_of, would
from nodeproof.actions.cloud import cloud_gives, cloud_says
from nodeproof.actions.credential import OwnCredential
from nodeproof.actions.exits import try_flags
from nodeproof.actions.join import join
from nodeproof.actions.joined import leave, run_on, start_again, try_kubelet
from nodeproof.actions.kubectl import kubectl
from nodeproof.actions.kubelet import restart_kubelet
from nodeproof.actions.nodes import keep_alive, label_node, labels_of, make_node, say_condition
from nodeproof.actions.pods import bound_pod, pending_pod, run_pod, run_witnesses
from nodeproof.actions.quarantine import wait_out_orphans_quarantine
from nodeproof.actions.units import restart_unit
from nodeproof.actions.workloads import (
    Workload,
    disruption_budget,
    holding,
    own_namespace,
    pod_of,
    preferring,
    priority_class,
    service,
    telling,
    workload,
)
from nodeproof.checks.backoff import doubled
from nodeproof.checks.bursts import in_bursts
from nodeproof.checks.checks import default_of, renewals_of
from nodeproof.checks.counting import counted
from nodeproof.checks.looks import amounts_to, listed, lives_on, not_listed, shown_throughout
from nodeproof.checks.moments import (
    all_came,
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
    next_of,
    no_execute_written,
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
    untainted,
    written,
)
from nodeproof.checks.observations import grew, same_as, shows
from nodeproof.checks.order import in_order
from nodeproof.checks.rates import spaced
from nodeproof.checks.weights import outweighs
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
from nodeproof.cluster.workloads import Pod, mirror_pod, tolerates
from nodeproof.faults import Fault
from nodeproof.faults.volumes import attachment
from nodeproof.labs.client.fleet import NodeInfo
from nodeproof.labs.ground.spec import Shape
from nodeproof.model import window as windows
from nodeproof.model.cluster import (
    NOT_READY,
    OUT_OF_SERVICE,
    POD_COLLECTOR,
    UNREACHABLE,
    UNSCHEDULABLE,
    ZONE_LABEL,
)
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.pattern import PRESENT
from nodeproof.probes.answering import api_at, kubelet_at, kubelet_from_outside
from nodeproof.probes.cgroup import SWAP_LIMIT, cgroup_file, swap_limit
from nodeproof.probes.configz import kubelet_field, manager_field
from nodeproof.probes.dbus import dbus_property
from nodeproof.probes.described import described
from nodeproof.probes.disk_holders import disk_holders
from nodeproof.probes.field import field_of
from nodeproof.probes.file import file_of
from nodeproof.probes.flag import flag_of
from nodeproof.probes.healthz import healthz
from nodeproof.probes.inhibitors import INHIBITORS, inhibitors
from nodeproof.probes.machine_facts import machine_facts
from nodeproof.probes.meminfo import meminfo
from nodeproof.probes.metric import metric, resource_metric
from nodeproof.probes.mounted import mounted
from nodeproof.probes.ranges import overlapping_ranges
from nodeproof.probes.resources import resources_of
from nodeproof.probes.size import times_as_large
from nodeproof.probes.source_address import source_address
from nodeproof.probes.swap_stats import swap_stats
from nodeproof.probes.task import task_of
from nodeproof.probes.wall_clock import wall_clock
from nodeproof.probes.written import acknowledged, last_written, writes
from nodeproof.safety.injector import Cut
from nodeproof.scenario.faults import (
    STATIC_PODS,
    called_off_shutdown,
    clock,
    cloud,
    freeze,
    huge_pages,
    kube_proxy,
    kubelet_settings,
    labelled,
    link_down,
    node_deleted,
    other_file,
    outage,
    partition,
    power_off,
    ready_patched,
    refused,
    reset,
    settings,
    shutdown,
    static_pod,
    swap,
    taint,
    unit_down,
    unit_up,
    volumes,
)
from nodeproof.scenario.stage import STATUS, Stage
from nodeproof.sources.audit import Audit, audit
from nodeproof.sources.cloud import CloudCalls
from nodeproof.sources.journal import Journal
from nodeproof.sources.log import Log
from nodeproof.sources.volumes import VolumeCalls

claims = pytest.mark.claims
needs = pytest.mark.needs


def standing(word: Callable[..., Fault], *args: Any, **settings: Any) -> pytest.MarkDecorator:
    """Mark a scenario with a fault on `lab.target` that is active before the scenario begins.

    Scenarios with the same fault share it: `@standing(swap, 256)`. Several are injected from the first line
    to the last.
    """
    return pytest.mark.standing.with_args(word, *args, **settings)


__all__ = [
    "ATTACHER",
    "CLOUD",
    "INHIBITORS",
    "NOT_READY",
    "OUT_OF_SERVICE",
    "POD_COLLECTOR",
    "PRESENT",
    "STATIC_PODS",
    "STATUS",
    "SWAP_LIMIT",
    "UNREACHABLE",
    "UNSCHEDULABLE",
    "ZONE_LABEL",
    "Audit",
    "Check",
    "CloudCalls",
    "Cut",
    "Fault",
    "Journal",
    "Log",
    "Moment",
    "NodeInfo",
    "OwnCredential",
    "Pod",
    "Shape",
    "Stage",
    "User",
    "VolumeCalls",
    "Witness",
    "Workload",
    "acknowledged",
    "all_came",
    "amounts_to",
    "api_at",
    "ask",
    "attachment",
    "audit",
    "became",
    "boot_id_changed",
    "booted",
    "bound_pod",
    "called_off_shutdown",
    "cgroup_file",
    "changed",
    "claims",
    "clock",
    "cloud",
    "cloud_gives",
    "cloud_says",
    "condition_became",
    "condition_said",
    "conditions_changed",
    "cordoned",
    "counted",
    "dbus_property",
    "default_of",
    "described",
    "disk_holders",
    "disruption_budget",
    "doubled",
    "event_reported",
    "field_of",
    "file_of",
    "flag_of",
    "freeze",
    "grew",
    "healthz",
    "holding",
    "huge_pages",
    "in_bursts",
    "in_order",
    "inhibitors",
    "join",
    "keep_alive",
    "kube_proxy",
    "kubectl",
    "kubelet_at",
    "kubelet_field",
    "kubelet_from_outside",
    "kubelet_of",
    "kubelet_restarted",
    "kubelet_settings",
    "label_node",
    "labelled",
    "labels_of",
    "last_heartbeat",
    "last_sign",
    "last_written",
    "leave",
    "link_down",
    "listed",
    "lives_on",
    "logged",
    "machine_ended",
    "machine_facts",
    "made",
    "make_node",
    "manager_field",
    "meminfo",
    "metric",
    "mirror_pod",
    "mounted",
    "needs",
    "next_of",
    "no_execute_written",
    "node_deleted",
    "not_listed",
    "other_file",
    "outage",
    "outweighs",
    "overlapping_ranges",
    "own_namespace",
    "partition",
    "pending_pod",
    "pod_bound",
    "pod_created",
    "pod_deletion",
    "pod_gone",
    "pod_marked",
    "pod_of",
    "pod_unschedulable",
    "power_off",
    "pre_stop_began",
    "pre_stop_ended",
    "preferring",
    "priority_class",
    "ready_patched",
    "recording_began",
    "refused",
    "removed",
    "renewals_of",
    "reset",
    "resource_metric",
    "resources_of",
    "restart_kubelet",
    "restart_unit",
    "run_on",
    "run_pod",
    "run_witnesses",
    "same_as",
    "say_condition",
    "service",
    "settings",
    "shown_throughout",
    "shows",
    "shutdown",
    "sigterm",
    "source_address",
    "spaced",
    "standing",
    "start_again",
    "static_pod",
    "swap",
    "swap_limit",
    "swap_stats",
    "taint",
    "taint_added",
    "taint_removed",
    "task_of",
    "telling",
    "times_as_large",
    "tolerates",
    "try_flags",
    "try_kubelet",
    "uncordoned",
    "unit_down",
    "unit_up",
    "untainted",
    "volumes",
    "wait_out_orphans_quarantine",
    "wall_clock",
    "windows",
    "workload",
    "would",
    "writes",
    "written",
]
