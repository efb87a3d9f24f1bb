"""Claims that an audit judges: each conforms, and each can deviate."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodeproof import catalogue
from nodeproof.audit import running
from nodeproof.audit.expectations import Expectation, count_machine_ids, of_cluster, of_node
from nodeproof.audit.running import (
    CLAIMS,
    LEASE_INTERVAL,
    MAX_PODS,
    TOLERATIONS,
    Cluster,
    judge_subject,
    judge_tolerations,
)
from nodeproof.checks.judge import judge
from nodeproof.existing.settings import Evidence, Tolerations
from nodeproof.model.history import Entry, History
from nodeproof.model.verdict import Verdict
from tests.unit.histories import NODE, OTHER, Story, configuration

Json = Any
Alter = Callable[[Json], object]
CATALOGUE = catalogue.load()
VERSION = "v1.36.3"
LEASE = {"metadata": {"name": NODE, "uid": "l"}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 8}}
IDS = Counter({"machine": 1})


def node(ready: str = "True", **fields: Json) -> Json:
    """Return a healthy Node, or one whose Ready has another status."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime is down"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[ready]
    pressure = {"status": "Unknown" if ready == "Unknown" else "False", "reason": reason}
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "message": message}]
    conditions += [{"type": f"{kind}Pressure", **pressure} for kind in ("Memory", "Disk", "PID")]
    info = {
        "kernelVersion": "6.1", "osImage": "Debian", "operatingSystem": "linux", "architecture": "amd64",
        "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": VERSION, "kubeProxyVersion": "",
        "machineID": "machine", "systemUUID": "system", "bootID": "boot",
    }  # fmt: skip
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    status = {"conditions": conditions, "nodeInfo": info, "capacity": amounts, "allocatable": amounts}
    return {"metadata": {"name": NODE, "uid": "n"}, "spec": fields, "status": status}


def tainted(*keys: str) -> list[Json]:
    return [{"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"} for key in keys]


def judged(expectations: list[Expectation], claim: str) -> Verdict:
    """Judge the only expectation of a claim."""
    (expectation,) = (entry for entry in expectations if entry.claim == claim)
    observation = expectation.observation
    story = Story().say(5.0, "observed", **observation.to_json(), value=observation.value, asked_t=4.9)
    return judge(CATALOGUE[claim], expectation.check, story.history(), configuration())


def expected_of(state: Json, lease: Json = LEASE) -> list[Expectation]:
    return list(of_node([copy.deepcopy(state), state], lease, IDS))


def set_ready(state: Json, **fields: str) -> None:
    state["status"]["conditions"][0].update(fields)


HEALTHY, LOST = node(), node("Unknown", taints=tainted("unreachable"))
CORDONED = node(unschedulable=True, taints=tainted("unschedulable"))
ALTERATIONS: Mapping[str, tuple[Json, Alter]] = {
    "conditions.types-present": (HEALTHY, lambda state: state["status"]["conditions"].pop()),
    "conditions.ready-true-shape": (HEALTHY, lambda state: set_ready(state, reason="SomebodySaid")),
    "conditions.node-phase": (HEALTHY, lambda state: state["status"].update(phase="Running")),
    "capacity.fields": (HEALTHY, lambda state: state["status"].update(allocatable={"cpu": "2"})),
    "info.kernel-os-runtime": (HEALTHY, lambda state: state["status"]["nodeInfo"].update(kernelVersion="")),
    "info.kube-proxy-version": (
        HEALTHY,
        lambda state: state["status"]["nodeInfo"].update(kubeProxyVersion=VERSION),
    ),
    "info.machine-ids": (HEALTHY, lambda state: state["status"]["nodeInfo"].update(machineID="")),
    "conditions.pressure-unknown-when-unreachable": (
        LOST,
        lambda state: state["status"]["conditions"][1].update(status="False"),
    ),
    "monitoring.unknown-reason": (LOST, lambda state: set_ready(state, reason="SomebodySaid")),
    "taints.noschedule-by-condition": (LOST, lambda state: state["spec"].pop("taints")),
    "cordon.taint": (CORDONED, lambda state: state["spec"].pop("taints")),
}


@pytest.mark.parametrize("claim_id", ALTERATIONS)
def test_state_of_a_node_conforms_and_an_altered_one_deviates(claim_id: str) -> None:
    state, alter = ALTERATIONS[claim_id]
    assert judged(expected_of(state), claim_id).outcome == "conforms"
    altered = copy.deepcopy(state)
    alter(altered)
    assert judged(expected_of(altered), claim_id).outcome == "deviates"


@pytest.mark.parametrize("lease", [None, {**LEASE, "spec": {"holderIdentity": OTHER}}])
def test_missing_or_foreign_lease_deviates(lease: Json) -> None:
    assert judged(expected_of(HEALTHY), "heartbeat.lease-per-node").outcome == "conforms"
    assert judged(expected_of(HEALTHY, lease), "heartbeat.lease-per-node").outcome == "deviates"


def test_machine_id_of_two_nodes_deviates() -> None:
    ids = count_machine_ids([HEALTHY, HEALTHY])
    assert judged(list(of_node([HEALTHY], LEASE, ids)), "info.machine-ids").outcome == "deviates"


@pytest.mark.parametrize(
    ("ranges", "outcome"),
    [
        ([["10.0.0.0/24", "fd00::/64"], ["10.0.1.0/24", "fd00:0:0:1::/64"]], "conforms"),
        ([["10.0.0.0/24"], ["10.0.3.0/24"], ["10.0.0.0/22"]], "deviates"),
        ([["10.0.0.0/24", "fd00::/64"], ["10.0.1.0/24", "fd00::/64"]], "deviates"),
    ],
)
def test_ranges_of_nodes_deviate_if_they_overlap(ranges: list[list[str]], outcome: str) -> None:
    nodes = [node(podCIDRs=cidrs) for cidrs in ranges]
    assert judged(list(of_cluster(nodes)), "cidr.unique").outcome == outcome


@pytest.mark.parametrize(("before", "after"), [("True", "Unknown"), ("Unknown", "True"), ("True", "False")])
def test_state_that_changed_in_the_observation_is_not_judged(before: str, after: str) -> None:
    states = (node(before), node(after))
    claims = {entry.claim for entry in of_node(states, LEASE, IDS)}
    assert not claims & {
        "conditions.ready-true-shape", "monitoring.unknown-reason", "taints.noschedule-by-condition",
        "conditions.pressure-unknown-when-unreachable",
    }  # fmt: skip


def test_node_that_recovered_and_was_lost_again_is_not_judged() -> None:
    before, after = node("Unknown"), node("Unknown")
    set_ready(after, lastTransitionTime="2026-01-01T00:00:09Z")
    assert list(of_node([before, after], LEASE, IDS)) == []


def cordoned(*, taint_t: float = 1.1) -> Story:
    """Cordon a Node before the observation, which begins at 2 s."""
    story = Story().cordon(1.0)
    for t in (taint_t,) if taint_t else ():
        story.taint(t, "node.kubernetes.io/unschedulable", "NoSchedule")
    return story


def labels_of_states(story: Story, before: Json, missed_watch: str = "") -> Mapping[str, str]:
    """Judge the claims about the state of a Node at the end of an observation."""
    history = bookmarked(story, 20.0, missed=missed_watch).history()
    cluster = Cluster(VERSION, 0.01, {NODE: before}, {})
    states = running.states_of(cluster, {NODE: story.object("nodes", "", NODE)}, history)
    expected = list(of_node(states[NODE], None, IDS))
    for entry in expected:
        story.say(20.0, "observed", **entry.observation.to_json(), value=entry.value, asked_t=20.0)
    read = Evidence([], [], Tolerations(None), kubelets={NODE: {}})
    missed = running.missed_states(history)
    (subject,) = running.of_nodes(cluster, states, {}, expected, read, missed)
    return {claim: verdict.label for claim, verdict in judge_subject(subject, story.history(), CATALOGUE)}


@pytest.mark.parametrize(("taint_t", "label"), [(1.1, "conforms"), (0.0, "deviates")])
def test_node_that_stays_cordoned_is_judged(taint_t: float, label: str) -> None:
    story = cordoned(taint_t=taint_t)
    assert labels_of_states(story, story.object("nodes", "", NODE))["cordon.taint"] == label


def test_node_cordoned_again_right_before_the_end_is_not_judged() -> None:
    """Its taint is still to come."""
    story = cordoned()
    before = story.object("nodes", "", NODE)
    story.cordon(10.0, on=False).untaint(10.1).cordon(19.9)
    assert "cordon.taint" not in labels_of_states(story, before)


def test_taint_removed_by_a_user_is_not_judged() -> None:
    story = cordoned()
    before = story.object("nodes", "", NODE)
    assert "cordon.taint" not in labels_of_states(story.untaint(19.9), before)


def test_condition_that_flapped_within_a_second_is_not_judged() -> None:
    story = Story().condition(1.0, "Unknown").taint(1.1, effect="NoSchedule")
    before = story.object("nodes", "", NODE)
    story.condition(19.5, "True").untaint(19.6).condition(19.9, "Unknown")
    assert (
        not {"taints.noschedule-by-condition", "monitoring.unknown-reason"}
        & labels_of_states(story, before).keys()
    )


@pytest.mark.parametrize("missed", ["", "nodes"])
def test_missed_states_make_claims_about_persistent_states_unproven(missed: str) -> None:
    story = cordoned(taint_t=0.0)
    before = story.object("nodes", "", NODE)
    if not missed:
        story.list(10.0, "nodes")
    assert labels_of_states(story, before, missed)["cordon.taint"] == "unproven: gap"


def test_node_that_never_reported_is_not_judged_as_lost() -> None:
    state = node("Unknown")
    set_ready(state, reason="NodeStatusNeverUpdated")
    assert {entry.claim for entry in expected_of(state)} == {"taints.noschedule-by-condition"}


@pytest.mark.parametrize(
    ("most", "per_core", "outcome"),
    [(110, 0, "conforms"), (110, 55, "conforms"), (110, 10, "deviates"), (50, 0, "deviates")],
)
def test_pods_of_a_node_follow_the_settings_of_its_kubelet(most: int, per_core: int, outcome: str) -> None:
    kubelet = {"maxPods": most, "podsPerCore": per_core}
    expectations = list(of_node([HEALTHY], LEASE, IDS, kubelet))
    assert judged(expectations, "capacity.max-pods").outcome == outcome


def test_pods_of_a_node_are_unproven_if_its_kubelet_was_not_read() -> None:
    cluster = Cluster(VERSION, 0.01, {NODE: HEALTHY}, {NODE: LEASE})
    read = Evidence([], [], Tolerations(None))
    (subject,) = running.of_nodes(cluster, {NODE: [HEALTHY]}, {NODE: LEASE}, [], read, "")
    ((claim, verdict),) = subject.verdicts
    assert (claim, verdict.code) == ("capacity.max-pods", "settings-unknown")


def renewing(story: Story, until_t: float, period_s: float = 2.04, since_t: float = 0.5) -> Story:
    return story.renewals(since_t, until_t, period_s=period_s)


def bookmarked(story: Story, t: float, rv_ahead: int = 0, missed: str = "") -> Story:
    """Add a LIST as a fence at `t`, then a bookmark of each watch; the watch in `missed` has none."""
    # Another resource was written meanwhile: no event of these has the revision of the LIST.
    story.rv += 1
    listed = {
        resource: {"rv": str(story.rv), "objects": story.objects(resource)} for resource in story.resources
    }
    story.say(t, "fence", listed=listed)
    for resource in story.resources:
        if resource != missed:
            body = {"metadata": {"resourceVersion": str(story.rv + rv_ahead)}}
            story.say(t + 1.0, "watch", resource=resource, type="BOOKMARK", object=body)
    return story.say(t + 1.1, "ended")


def interval(history: History, before: Json = HEALTHY, after: Json = HEALTHY, lease: Json = LEASE) -> Verdict:
    cluster = Cluster(VERSION, 0.01, {NODE: before}, {NODE: lease})
    read = Evidence([], [], Tolerations(None), kubelets={NODE: {}})
    (subject,) = running.of_nodes(cluster, {NODE: [before, after]}, {NODE: lease}, [], read, "")
    ((claim, verdict),) = judge_subject(subject, history, CATALOGUE)
    assert claim == LEASE_INTERVAL
    return verdict


def test_unknown_clock_of_the_server_does_not_matter() -> None:
    """An API server without the header `Date` gives an offset of 0."""
    history = bookmarked(renewing(Story(), 9.0), 10.0).history()
    begun, *others = history.entries
    unset = Entry(begun.t, "begun", {**begun.data, "wall_offset_s": 0.0})
    clockless = [entry for entry in others if entry.kind != "clock"]
    assert interval(History.of([unset, *clockless])).outcome == "conforms"


def silent(**fence: Any) -> Story:
    return bookmarked(renewing(Story(), 3.0), 10.0, **fence)


def silent_and_missed() -> Story:
    story = renewing(Story(), 3.0)
    lease = story.object("leases", "kube-node-lease", NODE)
    story.change(6.0, "leases", "kube-node-lease", NODE, lease, is_watched=False)
    return bookmarked(story, 10.0)


INTERVALS: Mapping[str, tuple[Story, str]] = {
    "quarter of the duration": (bookmarked(renewing(Story(), 9.0), 10.0), "conforms"),
    "another interval": (bookmarked(renewing(Story(), 9.0, 3.5), 10.0), "deviates"),
    # Somebody restarted the kubelet at 5.2 s: it renewed its Lease at once.
    "one other renewal": (
        bookmarked(renewing(renewing(Story(), 4.8), 10.0, since_t=5.2), 11.0),
        "unproven: gap",
    ),
    "silence behind a fence": (silent(), "unproven: component-died"),
    "silence without a bookmark": (silent(missed="leases"), "unproven: gap"),
    "silence before the LIST": (silent(rv_ahead=-1), "unproven: gap"),
    "missed renewal": (silent_and_missed(), "unproven: gap"),
}


@pytest.mark.parametrize(("story", "label"), INTERVALS.values(), ids=INTERVALS)
def test_lease_interval_is_judged_by_renewals_behind_a_fence(story: Story, label: str) -> None:
    assert interval(story.history()).label == label


def test_node_lost_in_the_observation_is_unproven() -> None:
    assert interval(Story().history(), after=LOST).code == "component-died"


def test_lease_without_a_duration_is_unproven() -> None:
    lease = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE}}
    assert interval(Story().history(), lease=lease).code == "settings-unknown"


@pytest.mark.parametrize(
    ("seconds", "flags", "label"),
    [
        ((300, 300), None, "conforms"),
        ((300, 20), None, "unproven: settings-unknown"),
        (None, {}, "unproven: settings-unknown"),
        ((300, 300), {}, "conforms"),
        ((300, 20), {}, "deviates"),
        ((300, None), {}, "deviates"),
        ((300, 20), {"default-unreachable-toleration-seconds": "20"}, "unproven: scaled"),
    ],
)
def test_tolerations_are_judged_by_the_flags(
    seconds: tuple[float, float | None] | None, flags: Mapping[str, str] | None, label: str
) -> None:
    by_taint = dict(zip(("NotReady", "Unreachable"), seconds, strict=True)) if seconds else None
    tolerations = Tolerations(by_taint, "refused")
    known = {} if flags is None else {"kube-apiserver": flags}
    subject = judge_tolerations(tolerations, configuration(flags_set=known))
    story, observation = Story(), tolerations.observation
    if observation is not None:
        story.say(5.0, "observed", **observation.to_json(), value=observation.value, asked_t=4.9)
    verdicts = [verdict for _claim, verdict in judge_subject(subject, story.history(), CATALOGUE)]
    assert min(verdicts, key=lambda verdict: verdict.rank).label == label


def test_every_claim_of_an_audit_can_deviate_by_a_test_here() -> None:
    others = {LEASE_INTERVAL, TOLERATIONS, MAX_PODS, "heartbeat.lease-per-node", "cidr.unique"}
    assert set(CLAIMS) == ALTERATIONS.keys() | others
