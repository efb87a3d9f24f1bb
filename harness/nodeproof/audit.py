"""`nodeproof audit`: record what a cluster does by itself, and judge it by what claims expect of it.

A claim about a problem is judged on nodes that have the problem all through the observation.
A node whose kubelet stopped reporting in between is left out of the claims about its kubelet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from statistics import median

from nodeproof import catalogue, terminal
from nodeproof.checks import heartbeats
from nodeproof.checks.judge import judge
from nodeproof.checks.observations import shows
from nodeproof.checks.settings import default_of
from nodeproof.checks.timing import renewals_of
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import WATCHED
from nodeproof.existing import connection, kubelets
from nodeproof.existing.configuration import (
    API_SERVER,
    KIND,
    PROFILE,
    Evidence,
    Setting,
    Tolerations,
    numbers,
    read_evidence,
    read_tolerations,
    settings_of,
    swap_bytes,
)
from nodeproof.existing.connection import PacedApi
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, includes
from nodeproof.model.cluster import (
    RENEW_JITTER,
    UNREACHABLE,
    UNSCHEDULABLE,
    Calibration,
    Configuration,
    condition,
    condition_status,
)
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Check, Judgment, Observation
from nodeproof.model.pattern import PRESENT, Json, matches
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import amount, duration_s
from nodeproof.model.verdict import Verdict, unproven
from nodeproof.recording.recorder import FENCE_S, ReadOnlyRecording
from nodeproof.report import digest, rundir, tables
from nodeproof.report.plain import aligned, counted, wrapped
from nodeproof.report.rundir import Row

Node = Mapping[str, Json]
States = Sequence[Node]
"""The states of one Node from the start to the end, at least one."""
LEASE_INTERVAL, MAX_PODS = "heartbeat.lease-interval", "capacity.max-pods"
TOLERATIONS = "eviction.default-tolerations-injected"
READY_SHAPE, UNKNOWN_REASON = "conditions.ready-true-shape", "monitoring.unknown-reason"
UNKNOWN_PRESSURES = "conditions.pressure-unknown-when-unreachable"
TAINT_BY_CONDITION, CORDON_TAINT = "taints.noschedule-by-condition", "cordon.taint"
PERSISTENT_STATE_CLAIMS = (READY_SHAPE, UNKNOWN_REASON, UNKNOWN_PRESSURES, TAINT_BY_CONDITION, CORDON_TAINT)
"""Claims about reactions of the cluster, which may be missing for a change right before the end."""
CLAIMS = (
    *PERSISTENT_STATE_CLAIMS,
    *(LEASE_INTERVAL, MAX_PODS, TOLERATIONS),
    *("heartbeat.lease-per-node", "conditions.types-present", "conditions.node-phase", "cidr.unique"),
    *("capacity.fields", "info.kernel-os-runtime", "info.kube-proxy-version", "info.machine-ids"),
)
"""The claims of the catalogue that an observation can decide."""
CLUSTER = "cluster"
"""The subject of claims about all nodes together."""
NOT_EMPTY = {"$not": {"$in": [None, ""]}}
RESOURCES = ("cpu", "memory", "pods")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_REPORTED = ("kernelVersion", "osImage", "operatingSystem", "architecture")
_NEVER_POSTED = "NodeStatusNeverUpdated"
_TAINTS: Mapping[str, Mapping[str, str]] = {
    "Ready": {"False": "node.kubernetes.io/not-ready", "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
}
"""Taint of each status of a condition (nodeConditionToTaintKeyStatusMap in
pkg/controller/nodelifecycle/node_lifecycle_controller.go).
"""


@dataclass(frozen=True)
class Expectation:
    """A claim about a node or the cluster, the observation that decides it, and the expected pattern."""

    claim: str
    subject: str
    what: str
    value: Json
    pattern: Json

    @property
    def observation(self) -> Observation:
        """The observation, under an id of its own."""
        return Observation(f"{self.claim} {self.subject} {self.what}", self.what, self.subject, self.value)

    @property
    def check(self) -> Check:
        """The check that decides the claim."""
        return shows(self.observation, self.pattern)


def is_reporting(states: States) -> bool:
    """Return whether a node's kubelet reported, whether Ready or not, from the start to the end."""
    return all(condition_status(node, "Ready") in ("True", "False") for node in states)


def is_lost(states: States) -> bool:
    """Return whether a kubelet that once reported was silent from the start to the end."""
    reason = (condition(states[-1], "Ready") or {}).get("reason")
    return _unchanged_status(states, "Ready") == "Unknown" and reason != _NEVER_POSTED


def of_node(
    states: States, lease: Json, machine_ids: Counter[str], kubelet: Json = None
) -> Iterator[Expectation]:
    """Yield the expectations of one node.

    Args:
        states: Its states from the start to the end.
        lease: Its Lease at the end, or None.
        machine_ids: How many Nodes report each machine id.
        kubelet: The configuration of its kubelet, or None.
    """
    after = states[-1]
    if is_reporting(states):
        yield from _of_reporting(after, lease, machine_ids)
        if kubelet is not None:
            yield _max_pods(after, kubelet)
    if _unchanged_status(states, "Ready") == "True":
        ready = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        yield _conditions(READY_SHAPE, after, [{"type": "Ready", **ready}])
    if is_lost(states):
        yield from _of_lost(after)
    for type_, by_status in _TAINTS.items():
        if key := by_status.get(_unchanged_status(states, type_)):
            yield from _taint(TAINT_BY_CONDITION, states, key)
    if all(node["spec"].get("unschedulable") for node in states):
        yield from _taint(CORDON_TAINT, states, UNSCHEDULABLE)


def _taint(claim: str, states: States, key: str) -> Iterator[Expectation]:
    """Yield that a Node has a NoSchedule taint, unless the taint was removed during the observation."""
    taint = {"key": key, "effect": "NoSchedule"}
    taints = [node["spec"].get("taints") or [] for node in states]
    if matches([taint], taints[-1]) or not any(matches([taint], present) for present in taints):
        name = str(states[-1]["metadata"]["name"])
        yield Expectation(claim, name, "spec.taints", taints[-1], [taint])


def _of_reporting(node: Node, lease: Json, machine_ids: Counter[str]) -> Iterator[Expectation]:
    """Yield what is expected of a node whose kubelet reports."""
    name, status = str(node["metadata"]["name"]), node["status"]
    own_lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
    held = lease and {"metadata": {"name": lease["metadata"]["name"]}, "spec": lease["spec"]}
    yield Expectation("heartbeat.lease-per-node", name, "Lease", held, own_lease)
    types = [{"type": type_, "status": {"$in": ["True", "False"]}} for type_ in ("Ready", *PRESSURES)]
    yield _conditions("conditions.types-present", node, types)
    yield Expectation("conditions.node-phase", name, "status.phase", status.get("phase"), {"$present": False})
    amounts = {kind: status.get(kind) for kind in ("capacity", "allocatable")}
    all_present = dict.fromkeys(amounts, dict.fromkeys(RESOURCES, PRESENT))
    yield Expectation("capacity.fields", name, "resources", amounts, all_present)
    info = status.get("nodeInfo") or {}
    expected_info = {**dict.fromkeys(_REPORTED, NOT_EMPTY), "containerRuntimeVersion": {"$contains": "://"}}
    machine = {field: info.get(field) for field in expected_info}
    yield Expectation("info.kernel-os-runtime", name, "status.nodeInfo", machine, expected_info)
    what, version = "status.nodeInfo.kubeProxyVersion", info.get("kubeProxyVersion")
    yield Expectation("info.kube-proxy-version", name, what, version, {"$in": ["", None]})
    ids = {field: info.get(field) for field in ("machineID", "systemUUID", "bootID")}
    shared = {**ids, "nodes with this machineID": machine_ids[str(info.get("machineID"))]}
    own = {**dict.fromkeys(ids, NOT_EMPTY), "nodes with this machineID": 1}
    yield Expectation("info.machine-ids", name, "ids", shared, own)


def _max_pods(node: Node, kubelet: Mapping[str, Json]) -> Expectation:
    """Return the number of pods that a kubelet reports (MachineInfo in pkg/kubelet/nodestatus/setters.go)."""
    capacity = node["status"].get("capacity") or {}
    most, per_core = int(kubelet.get("maxPods") or 0), int(kubelet.get("podsPerCore") or 0)
    expected = min(most, per_core * int(amount(capacity.get("cpu", "0")))) if per_core else most
    name, what = str(node["metadata"]["name"]), "status.capacity.pods"
    return Expectation("capacity.max-pods", name, what, capacity.get("pods"), str(expected))


def _of_lost(node: Node) -> Iterator[Expectation]:
    """Yield what the node controller writes about a node whose kubelet is silent."""
    unknown = {"status": "Unknown", "reason": "NodeStatusUnknown"}
    message = {"message": "Kubelet stopped posting node status."}
    yield _conditions(UNKNOWN_REASON, node, [{"type": "Ready", **unknown, **message}])
    pressures = [{"type": type_, **unknown} for type_ in PRESSURES]
    yield _conditions(UNKNOWN_PRESSURES, node, pressures)


def _conditions(claim: str, node: Node, pattern: Json) -> Expectation:
    types = {part["type"] for part in pattern}
    conditions = [entry for entry in node["status"].get("conditions") or () if entry["type"] in types]
    return Expectation(claim, str(node["metadata"]["name"]), "status.conditions", conditions, pattern)


def _unchanged_status(states: States, type_: str) -> str:
    """Return the status of a condition that made no transition in between, else an empty string."""
    transitions = {
        tuple(str(entry.get(field, "")) for field in ("status", "lastTransitionTime"))
        for entry in (condition(node, type_) or {} for node in states)
    }
    return transitions.pop()[0] if len(transitions) == 1 else ""


def of_cluster(nodes: Sequence[Node]) -> Iterator[Expectation]:
    """Yield the expectations of all nodes together."""
    ranges = [ip_network(cidr) for node in nodes for cidr in node["spec"].get("podCIDRs") or ()]
    if len(ranges) > 1:
        # Of sorted ranges, one that overlaps any later one overlaps the next.
        ranges.sort(key=lambda range_: (range_.version, int(range_.network_address)))
        overlapping = sum(one.overlaps(other) for one, other in pairwise(ranges))
        value = {"ranges": len(ranges), "overlapping": overlapping}
        yield Expectation("cidr.unique", CLUSTER, "podCIDRs", value, {"overlapping": 0})


def count_machine_ids(nodes: Iterable[Node]) -> Counter[str]:
    """Count the Nodes that report each machine id."""
    return Counter(str(node["status"].get("nodeInfo", {}).get("machineID")) for node in nodes)


# The audit


Objects = Mapping[str, Json]
"""Objects of one resource, by name."""
RECORDED = ("nodes", "leases")
DEFAULT_TOLERATION_S = 300
_TOLERATION_CONSTANTS = ("default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds")
RENEWALS = 3
"""Gaps between renewals of a Lease that an observation of `MAX_OBSERVED_S` has at the default interval."""
MAX_OBSERVED_S = 43.0
_BEGIN_S = 1.4
_LATENCY_REQUESTS = 5
_WRITE_S = 1.0
"""Time that a kubelet's write may take (s), by the SLO of API calls
(github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md).
"""
_CONFIRMED = 2
"""Intervals that must be outside before a deviation is reported."""
_SLACK_LIMIT_S = 3.0
"""As of the profile `documented`."""


@dataclass(frozen=True)
class Cluster:
    """A cluster before the observation."""

    version: str
    latency_s: float
    nodes: Objects
    leases: Objects


Decision = tuple[str, Check | Verdict]
"""A claim, and its check; a verdict if no check can decide it."""


@dataclass(frozen=True)
class Subject:
    """A node or the whole cluster: its configuration, and what decides each of its claims."""

    name: str
    configuration: Configuration
    decisions: tuple[Decision, ...]


def look(api: Api) -> Cluster:
    """Read the version, the Nodes and the Leases, and how long a request takes.

    Raises:
        Problem: The server refuses or does not answer.
    """
    try:
        version = str(api.get("/version")["gitVersion"])
        latencies = [_latency_s(api) for _ in range(_LATENCY_REQUESTS)]
        nodes, leases = (_by_name(api.get(WATCHED[resource])["items"]) for resource in RECORDED)
    except ApiError as error:
        if error.status in (401, 403):
            step = "see which permissions it needs: nodeproof audit --rbac"
            raise Problem(f"the API server refuses: {error}", "audit", step) from error
        raise connection.no_answer(error, "audit") from error
    if not nodes:
        raise Problem("the cluster has no Nodes", "audit", "choose another context with --context")
    return Cluster(version, median(latencies), nodes, leases)


def _latency_s(api: Api) -> float:
    began_t = time.monotonic()
    api.get("/version")
    return time.monotonic() - began_t


def observed_s(cluster: Cluster) -> float:
    """Return how long to observe (s): for `RENEWALS` gaps of the longest interval, within the limit."""
    longest_s = max(map(_renewal_s, cluster.leases.values()), default=0.0)
    return min(MAX_OBSERVED_S, _BEGIN_S + (RENEWALS + 1) * (1 + RENEW_JITTER) * longest_s)


def _renewal_s(lease: Json) -> float:
    return float(lease["spec"].get("leaseDurationSeconds") or 0) / 4


def record(
    api: PacedApi, cluster: Cluster, evidence: Evidence, seconds: float, folder: Path
) -> tuple[History, list[Subject]]:
    """Observe a cluster for some time (s), and return its recording and what to judge.

    The history is written to `folder`. Raises ApiError, Problem.
    """
    path = folder / "history.jsonl"
    names, wall_offset_s = list(cluster.nodes), api.wall_offset_s
    with ReadOnlyRecording(api, path, names, RECORDED, seconds, wall_offset_s) as recording:
        objects, requested_t = recording.fence()
        nodes, leases = (_by_name(objects[resource]) for resource in RECORDED)
        history = recording.history()
        states = states_of(cluster, nodes, history)
        expected = list(_expectations(states, nodes, leases, evidence))
        for expectation in expected:
            recording.observe(expectation.observation, requested_t)
        tolerations = evidence.tolerations
        if tolerations.observation is not None:
            recording.observe(tolerations.observation, tolerations.requested_t)
    configuration = _configuration(cluster)
    subjects = list(of_nodes(cluster, states, leases, expected, evidence, missed_states(history)))
    together = [(entry.claim, entry.check) for entry in expected if entry.subject == CLUSTER]
    flags_set = evidence.flags_set(API_SERVER)
    whole = judge_tolerations(tolerations, replace(configuration, flags_set=flags_set))
    whole = replace(whole, decisions=(*together, *whole.decisions))
    return recording.history(), [whole, *subjects]


def judge_tolerations(tolerations: Tolerations, configuration: Configuration) -> Subject:
    """Return how to judge the claim about the default, of the whole cluster.

    The default conforms whatever the flags of the API server are. Another value is judged by the flags, and
    is unproven if they are unknown.
    """
    observation = tolerations.observation
    if observation is None:
        return _unknown(configuration, tolerations.reason)
    if API_SERVER in configuration.flags_set:
        reported = {**configuration.reported, API_SERVER: {"DefaultTolerationSeconds": tolerations.seconds}}
        decisions = tuple((TOLERATIONS, default_of(constant)) for constant in _TOLERATION_CONSTANTS)
        return Subject(CLUSTER, replace(configuration, reported=reported), decisions)
    expected = dict.fromkeys(observation.value, DEFAULT_TOLERATION_S)
    if observation.value != expected:
        reason = (
            f"a new pod has {dict(observation.value)} s; whether flags of the API server say so is unknown"
        )
        return _unknown(configuration, reason)
    return Subject(CLUSTER, configuration, ((TOLERATIONS, shows(observation, expected)),))


def _unknown(configuration: Configuration, reason: str) -> Subject:
    return Subject(CLUSTER, configuration, ((TOLERATIONS, unproven("settings-unknown", reason)),))


def _expectations(
    states: Mapping[str, States], nodes: Objects, leases: Objects, evidence: Evidence
) -> Iterator[Expectation]:
    machine_ids = count_machine_ids(nodes.values())
    for name, states_of_node in states.items():
        kubelet = evidence.kubelets.get(name)
        yield from of_node(states_of_node, leases.get(name), machine_ids, kubelet)
    yield from of_cluster(list(nodes.values()))


def states_of(cluster: Cluster, nodes: Objects, history: History) -> Mapping[str, States]:
    """Return all states of each Node that was there from the start to the end, by name."""
    states = {}
    for name, before in cluster.nodes.items():
        after = nodes.get(name)
        if after is not None and after["metadata"]["uid"] == before["metadata"]["uid"]:
            watched = (version.object for version in history.versions("nodes", "", name))
            # The watch may have gone on after the LIST at the end.
            between = (node for node in watched if _revision(before) <= _revision(node) <= _revision(after))
            states[name] = [before, *between, after]
    return states


def _revision(node: Json) -> int:
    return int(node["metadata"]["resourceVersion"])


def missed_states(history: History) -> str:
    """Return why the watch of Nodes may have missed a state, or an empty string."""
    if sum(entry.data["resource"] == "nodes" for entry in history.of_kind("listed")) > 1:
        return "the watch of nodes began anew with a LIST, and may have missed a change"
    return fence(history, ("nodes",)).reason


def of_nodes(
    cluster: Cluster,
    states: Mapping[str, States],
    leases: Objects,
    expected: Sequence[Expectation],
    evidence: Evidence,
    missed: str,
) -> Iterator[Subject]:
    """Yield what to judge of each node, with the version and the lease duration of its kubelet.

    If states may be missed, no claim about a persistent state is proven.
    """
    configuration = _configuration(cluster)
    by_node: dict[str, list[Expectation]] = {}
    for entry in expected:
        by_node.setdefault(entry.subject, []).append(entry)
    for name, states_of_node in states.items():
        of_name = by_node.get(name, [])
        unsure = [entry for entry in of_name if missed and entry.claim in PERSISTENT_STATE_CLAIMS]
        checks = [(entry.claim, entry.check) for entry in of_name if entry not in unsure]
        lease = leases.get(name) or {"spec": {}}
        duration_s = lease["spec"].get("leaseDurationSeconds")
        settings = {"kubelet": {"nodeLeaseDurationSeconds": duration_s}} if duration_s else {}
        version = _version(states_of_node[-1], cluster.version)
        own_configuration = replace(configuration, kubernetes_version=version, reported=settings)
        verdicts: list[Decision] = [(entry.claim, unproven("gap", missed)) for entry in unsure]
        if not is_reporting(states_of_node):
            if condition_status(states_of_node[0], "Ready") in ("True", "False"):
                reason = f"{name} stopped reporting during the observation"
                verdicts.append((LEASE_INTERVAL, unproven("component-died", reason)))
        elif settings:
            checks.append((LEASE_INTERVAL, renewals_of(name, windows.renewals(), at_least=RENEWALS)))
        else:
            reason = f"the Lease of {name} has no leaseDurationSeconds"
            verdicts.append((LEASE_INTERVAL, unproven("settings-unknown", reason)))
        if is_reporting(states_of_node) and name in evidence.unread_kubelets:
            verdicts.append((MAX_PODS, unproven("settings-unknown", evidence.unread_kubelets[name])))
        yield Subject(name, own_configuration, (*checks, *verdicts))


def _version(node: Json, otherwise: str) -> str:
    """Return the version of a node's kubelet, or the API server's if the node reports none."""
    version = str(node["status"].get("nodeInfo", {}).get("kubeletVersion", ""))
    with contextlib.suppress(ValueError):
        includes(">=0", version)
        return version
    return otherwise


def _configuration(cluster: Cluster) -> Configuration:
    return Configuration(
        kubernetes_version=cluster.version,
        lab=KIND,
        profile=PROFILE,
        slack_limit_s=_SLACK_LIMIT_S,
        negative_wait_s=0.0,
        calibration=Calibration(watch_latency_s=cluster.latency_s, api_resolution_s=_WRITE_S),
    )


def _by_name(items: Iterable[Json]) -> Objects:
    return {str(item["metadata"]["name"]): item for item in items}


def judge_subject(
    subject: Subject, history: History, claims: Mapping[str, Claim]
) -> list[tuple[str, Verdict]]:
    """Return the claims of a subject with their verdicts."""
    verdicts = []
    for claim, decision in subject.decisions:
        if isinstance(decision, Verdict):
            verdict = decision
        else:
            verdict = judge(claims[claim], decision, history, subject.configuration)
        if claim == LEASE_INTERVAL and verdict.outcome == "deviates":
            verdict = confirm_interval(verdict, history, subject.name)
        verdicts.append((claim, verdict))
    return verdicts


def confirm_interval(verdict: Verdict, history: History, node: str) -> Verdict:
    """Return a deviation of a Lease's renewals only if at least two intervals between receipts show it.

    Anybody may restart the kubelet, set the node's clock or switch the machine off during an audit: one
    renewal comes at another time then, or none comes any more.
    """
    window = verdict.window
    if window is None:
        return verdict
    renewals = heartbeats.watched_renewals(history, node)
    by_node, by_receipt = (
        [after - before for before, after in pairwise(times)]
        for times in ([beat.t for beat in renewals], [float(beat.detail["received_t"]) for beat in renewals])
    )
    if all(map(window.holds, by_node)):
        reason = f"{verdict.reason}; {node} may have been stopped"
        return unproven("component-died", reason, window, verdict.measured)
    if sum(not window.holds(interval_s) for interval_s in by_receipt) < _CONFIRMED:
        reason = f"{verdict.reason}; a restarted kubelet or a set clock moves one renewal"
        return unproven("gap", reason, window, verdict.measured)
    return verdict


def select(subjects: Iterable[Subject], selected: Collection[str]) -> Iterator[Subject]:
    """Yield the subjects with the selected claims, without those that have none."""
    for subject in subjects:
        decisions = tuple(entry for entry in subject.decisions if entry[0] in selected)
        if decisions:
            yield replace(subject, decisions=decisions)


def write_run(
    folder: Path,
    began: datetime,
    subjects: Sequence[Subject],
    history: History,
    claims: Mapping[str, Claim],
    cluster: Cluster,
) -> tuple[Row, ...]:
    """Judge all subjects and write the folder of a run, with the recording beside each; return the rows."""
    judged = set[str]()
    for subject in subjects:
        scenario = f"audit::{subject.name}"
        verdicts = judge_subject(subject, history, claims)
        configuration, decisions = subject.configuration, subject.decisions
        rows = [rundir.row(claims[claim], scenario, verdict, configuration) for claim, verdict in verdicts]
        judgments = [Judgment(claim, check) for claim, check in decisions if isinstance(check, Check)]
        place = rundir.write_scenario(folder, scenario, judgments, configuration, rows)
        rundir.link(folder / "history.jsonl", place / "history.jsonl")
        judged.update(claim for claim, _verdict in verdicts)
    facts = rundir.RunFacts(
        run=folder.name,
        began=began.isoformat(),
        ended=datetime.now(UTC).isoformat(),
        lab=KIND,
        profile=PROFILE,
        kubernetes_version=cluster.version,
        command="nodeproof audit",
        components={},
        settings=(),
        quarantined=(),
        selected=tuple(sorted(judged)),
        exit_reason="",
    )
    rundir.write_facts(folder, facts)
    return rundir.merge_verdicts(folder)


HEALTH_CHECK_S = 45.0
"""HTTP/2 read-idle and ping time-outs of a client: 30 s + 15 s (k8s.io/apimachinery/pkg/util/net/http.go)."""
CRITICAL = 2_000_000_000
"""Least priority of critical pods (pkg/apis/scheduling/types.go: SystemCriticalPriority)."""
LOGIND_S = 30.0
"""InhibitDelayMaxSec of unattended-upgrades on Ubuntu and Debian, whose drop-in sorts after the kubelet's."""
_LIMITED = "LimitedSwap"


@dataclass(frozen=True)
class Danger:
    """A dangerous value: what it is, the claim, its statement, and the heading or remark of the finding."""

    what: str
    claim: str
    statement: str
    finding: str


def dangers(evidence: Evidence, claims: Mapping[str, Claim], version: str) -> Iterator[Danger]:
    """Yield the dangerous values among the settings that are known."""
    concerns = [
        *_of_control_plane(evidence, claims, version),
        *(entry for name in evidence.kubelets for entry in _of_kubelet(evidence, name)),
    ]
    for claim, what, finding in concerns:
        yield Danger(what, claim, claims[claim].statement, finding or claims[claim].drift)


Concern = tuple[str, str, str]
"""A claim, the dangerous value, and the title of a page in docs/findings; empty for the claim's remark."""


def _of_control_plane(evidence: Evidence, claims: Mapping[str, Claim], version: str) -> Iterator[Concern]:
    for grace_s in sorted(numbers(evidence, "node-monitor-grace-period", claims, version)):
        if grace_s < HEALTH_CHECK_S:
            what = f"a grace period of {grace_s:g} s is below the {HEALTH_CHECK_S:g} s in which a kubelet"
            what += " notices a dead connection: one lost connection can make a healthy node Unknown"
            yield "monitoring.grace-period-default", what, "The grace period is 50 s, not 40 s"
    if 1.0 in numbers(evidence, "node-eviction-rate", claims, version):
        what = "with an eviction rate of exactly 1, evictions never resume after all zones were down"
        heading = "With `--node-eviction-rate=1` exactly, evictions never resume after all zones were down"
        yield "zones.recovery-resumes", what, heading
    for taint, seconds in (evidence.tolerations.seconds or {}).items():
        if seconds == 0:
            what = f"pods tolerate {taint} for 0 s: they are deleted as soon as a node has the taint"
            yield TOLERATIONS, what, "The node controller does not define the five minutes"
    for pod in evidence.static_pods:
        if (pod["spec"].get("priority") or 0) < CRITICAL:
            what = f"static pod {pod['metadata']['name']} has no critical priority class: a shutdown stops it"
            yield "graceful-shutdown.critical-definition", f"{what} with the regular pods", ""


def _of_kubelet(evidence: Evidence, name: str) -> Iterator[Concern]:
    configuration = evidence.kubelets[name]
    total_s, critical_s = (
        duration_s(configuration.get(field) or 0)
        for field in ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    )
    if critical_s and critical_s >= total_s:
        what = f"a critical period of {critical_s:g} s out of {total_s:g} s leaves regular pods no time"
        yield "graceful-shutdown.validation", f"{name}: {what}", ""
    if total_s and not critical_s:
        what = f"{name}: no shutdown period for critical pods: they get two seconds"
        heading = (
            "Without a period for critical pods they get two seconds, and the shutdown does not wait for them"
        )
        yield "graceful-shutdown.activation", what, heading
    node = next(node for node in evidence.nodes if node["metadata"]["name"] == name)
    image = str(node["status"].get("nodeInfo", {}).get("osImage", ""))
    if total_s > LOGIND_S and image.startswith(("Ubuntu", "Debian")):
        what = f"{name} ({image}): unattended-upgrades, if installed, limits a shutdown to {LOGIND_S:g} s,"
        what += f" which is less than {total_s:g} s and switches graceful shutdown off"
        yield "graceful-shutdown.inhibit-delay-conflict", what, ""
    behavior = (configuration.get("memorySwap") or {}).get("swapBehavior")
    if behavior == _LIMITED and swap_bytes(node) and not _reserves_memory(configuration):
        what = f"{name}: pods may use all {swap_bytes(node)} bytes of swap, and no memory is reserved"
        yield "swap.formula-no-reservation", what, ""


def _reserves_memory(configuration: Mapping[str, Json]) -> bool:
    reserved = (configuration.get(field) or {} for field in ("systemReserved", "kubeReserved"))
    with contextlib.suppress(AttributeError):
        return any(resources.get("memory") for resources in reserved)
    return False


_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: nodeproof-audit
rules:"""


def cluster_role(*, reads_settings: bool, reads_kubelets: bool, uses_nodes_proxy: bool) -> str:
    """Return the ClusterRole of an audit as YAML.

    Without the permission of a rule, claims that need it are `unproven` with code `settings-unknown`. The
    rules for nodes and Leases are required.

    Args:
        reads_settings: The audit also reads the flags of static pods, and sends a dry run of a pod.
        reads_kubelets: It also reads the configuration of each kubelet from the kubelet.
        uses_nodes_proxy: It also reads the configuration of kubelets through nodes/proxy.
    """
    lines = [_ROLE, *_rule("state and heartbeats of nodes", "nodes", "list", "watch")]
    comment = "heartbeats; the audit reads only namespace kube-node-lease, this rule allows all"
    lines += _rule(comment, "leases", "list", "watch", group="coordination.k8s.io")
    if reads_settings:
        comment = "flags of static pods; the audit reads only namespace kube-system, this rule allows all"
        lines += _rule(comment, "pods", "list")
        lines += _rule("a dry run in namespace default, for the default tolerations", "pods", "create")
    if reads_kubelets:
        comment = "/configz, from the kubelet itself; before Kubernetes 1.33 a kubelet wants nodes/proxy"
        lines += _rule(comment, "nodes/configz", "get")
    if uses_nodes_proxy:
        lines += _rule("/configz of kubelets; this permission gives access to all pods", "nodes/proxy", "get")
    return "\n".join(lines)


def _rule(comment: str, resource: str, *verbs: str, group: str = "") -> Iterator[str]:
    yield f"# {comment}"
    yield f"- apiGroups: {json.dumps([group])}"
    yield f"  resources: {json.dumps([resource])}"
    yield f"  verbs: {json.dumps(verbs)}"


def run(arguments: argparse.Namespace) -> int:
    """Audit a cluster, print the verdicts and return the exit code.

    Raises:
        Problem: The kubeconfig cannot be used, the server refuses or does not answer, or a claim is unknown.
        ApiError: The server failed during the observation.
    """
    claims = catalogue.load()
    selected = _selected(arguments.claim, claims)
    reads_settings = not arguments.claim or bool({TOLERATIONS, MAX_PODS} & selected)
    reads_kubelets = reads_settings and arguments.read_kubelets
    uses_nodes_proxy = reads_settings and arguments.allow_nodes_proxy
    if arguments.rbac:
        role = cluster_role(
            reads_settings=reads_settings, reads_kubelets=reads_kubelets, uses_nodes_proxy=uses_nodes_proxy
        )
        terminal.put(role)
        return digest.CONFORMS
    access = connection.load_kubeconfig(arguments.kubeconfig, arguments.context)
    terminal.say(f"context {access.context}, server {access.server}, user {access.user}")
    with contextlib.closing(PacedApi(access)) as api, _folder(arguments.run) as folder:
        began = datetime.now(UTC)
        cluster = look(api)
        evidence = Evidence((), (), Tolerations(None, "not selected"))
        if reads_settings:
            nodes, leases = list(cluster.nodes.values()), list(cluster.leases.values())
            evidence = read_evidence(api, nodes, leases, read_tolerations(api))
            direct = kubelets.directly(access, connection.USER_AGENT, api.pace) if reads_kubelets else None
            indirect = kubelets.by_nodes_proxy(api) if uses_nodes_proxy else None
            ways = [way for way in (direct, indirect) if way] or [kubelets.not_allowed]
            result = kubelets.read_kubelets(nodes, ways)
            evidence = replace(evidence, kubelets=result.configurations, unread_kubelets=result.unread)
        seconds = observed_s(cluster)
        api.watch_for(math.ceil(seconds) + FENCE_S)
        count = counted(len(cluster.nodes), "node")
        terminal.say(f"Kubernetes {cluster.version}, {count}: observing for {seconds:.0f} s")
        history, subjects = record(api, cluster, evidence, seconds, folder)
        subjects = list(select(subjects, selected))
        rows = write_run(folder, began, subjects, history, claims, cluster)
        facts = rundir.read_facts(folder)
        absent = sorted(selected - set(facts.selected))
        if absent:
            names = ", ".join(absent)
            terminal.say(f"not judged, as no node has the state or the field that they are about: {names}")
        shown = list(settings_of(evidence, claims, cluster.version)) if reads_settings else []
        warnings = list(dangers(evidence, claims, cluster.version))
        _print(arguments, folder, claims, shown, warnings)
    return digest.exit_code(rows, arguments.claim, facts.selected)


def _selected(names: Sequence[str], claims: Mapping[str, Claim]) -> frozenset[str]:
    """Return the selected claims. Raises Problem if one does not exist or needs more than an observation."""
    for name in names:
        if catalogue.find(name, claims).id not in CLAIMS:
            choices = ", ".join(sorted(CLAIMS))
            raise Problem(f"an observation cannot decide {name}", "--claim", f"choose from: {choices}")
    return frozenset(names or CLAIMS)


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Make the run's folder; without `path` a temporary one. Raises Problem if the folder exists."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="nodeproof-audit-") as name:
            yield rundir.create(Path(name))
        return
    if path.exists():
        raise Problem("the folder exists", str(path), "name a new folder with --run")
    yield rundir.create(path)


def _print(
    arguments: argparse.Namespace,
    folder: Path,
    claims: Mapping[str, Claim],
    shown: Sequence[Setting],
    warnings: Sequence[Danger],
) -> None:
    rows = rundir.read_verdicts(folder)
    if arguments.format == "json":
        content = {
            "verdicts": rows,
            "settings": [{**asdict(entry), "value": entry.value or None} for entry in shown],
            "warnings": [asdict(entry) for entry in warnings],
        }
        terminal.document(f"{json.dumps(content, indent=1)}\n")
    elif arguments.format == "junit":
        terminal.document(tables.junit_xml(digest.read(folder, claims)))
    else:
        for line in (*_setting_lines(shown), *_danger_lines(warnings)):
            terminal.put(line)
        kept = str(folder) if arguments.run else "not kept (--run DIR)"
        terminal.put(tables.render(digest.read(folder, claims), kept, {}))


def _setting_lines(entries: Sequence[Setting]) -> Iterator[str]:
    if not entries:
        return
    cells = [(entry.name, entry.value, entry.source) for entry in entries if entry.value]
    yield from aligned([("setting", "value", "source"), *cells])
    yield ""
    unknown: dict[str, list[str]] = {}
    for entry in entries:
        if not entry.value:
            unknown.setdefault(entry.source, []).append(entry.name)
    for reason, names in unknown.items():
        yield f"unproven: settings-unknown: {reason}"
        yield from wrapped(", ".join(names))
        yield ""


def _danger_lines(entries: Sequence[Danger]) -> Iterator[str]:
    for entry in entries:
        yield f"warning: {entry.what}"
        yield from wrapped(f"{entry.claim}: {entry.statement}")
        yield from wrapped(f"finding: {entry.finding}")
        yield ""
