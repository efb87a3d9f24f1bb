"""Invariants of a storm, judged on short stories."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodeproof.checks import endpoint_invariants, invariants, pod_invariants, recovery
from nodeproof.checks.judge import judge
from nodeproof.model import window as windows
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    POD,
    RESOURCES,
    TOLERATION_S,
    Story,
    configuration,
    partition,
)
from tests.unit.sample_checks import CLAIM, HEALING, assert_verdict, run

MARK = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


def evicted(story: Story, t: float, toleration_s: float | None = TOLERATION_S) -> Story:
    """Let the taint manager delete the pod; it tolerates the taint unreachable for ever if None."""
    pod = story.object("pods", NAMESPACE, POD)
    seconds = {} if toleration_s is None else {"tolerationSeconds": toleration_s}
    pod["spec"]["tolerations"] = [{"key": UNREACHABLE, "operator": "Exists", **seconds}]
    pod["status"]["conditions"] = [MARK]
    story.change(t - 0.01, "pods", NAMESPACE, POD, pod)
    return story.evict(t)


def tainted(taint_t: float = 30.0) -> Story:
    return Story().pod(1.0).bind(1.1).taint(taint_t)


@pytest.mark.parametrize(
    ("unknown_s", "label"), [(GRACE_S + 0.5, "conforms"), (GRACE_S - 2.0, "deviates"), (2.0, "deviates")]
)
def test_node_must_be_silent_for_the_grace_period(unknown_s: float, label: str) -> None:
    story = partition(unknown_s=unknown_s).fence(80.0)
    assert_verdict(run(invariants.known_while_heard(), story), label, NODE)


def test_heartbeat_during_the_write_does_not_count() -> None:
    story = partition()
    unknown_t = next(entry.t for entry in story.entries if "Unknown" in str(entry.data))
    story.renew(unknown_t - 0.05, received_t=unknown_t - 0.04)
    assert_verdict(run(invariants.known_while_heard(), story.fence(80.0)), "conforms")


def test_storm_without_a_lost_node_proves_nothing_about_silence() -> None:
    assert_verdict(run(invariants.known_while_heard(), Story().fence(9.0)), "unproven: no-anchor", "not met")


@pytest.mark.parametrize(
    ("evicted_t", "toleration_s", "label"),
    [
        (30.0 + TOLERATION_S, TOLERATION_S, "conforms"),
        (30.0 + TOLERATION_S - 3.0, TOLERATION_S, "deviates"),
        (31.0, 0, "conforms"),
        (45.0, None, "deviates"),
    ],
)
def test_pod_is_evicted_when_its_toleration_is_over(
    evicted_t: float, toleration_s: float | None, label: str
) -> None:
    story = evicted(tainted(), evicted_t, toleration_s).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), label, POD)


@pytest.mark.parametrize(("removed_s", "label"), [(0.1, "conforms"), (2.0, "deviates")])
def test_pod_is_not_evicted_after_the_taint_was_removed(removed_s: float, label: str) -> None:
    due_t = 30.0 + TOLERATION_S
    story = evicted(tainted().untaint(due_t - removed_s), due_t).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), label)


def test_deletion_may_be_received_before_its_taint() -> None:
    story = evicted(Story().pod(1.0).bind(1.1), 30.0, toleration_s=0).taint(30.02).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "conforms")


def test_taint_that_replaces_another_does_not_restart_the_toleration() -> None:
    story = tainted().taint(35.0, key="node.kubernetes.io/not-ready")
    node = story.object("nodes", "", NODE)
    node["spec"]["taints"] = node["spec"]["taints"][1:]
    story.change(35.1, "nodes", "", NODE, node)
    story = evicted(story, 30.0 + TOLERATION_S).fence(60.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "conforms")


def test_deletion_by_others_is_no_taint_eviction() -> None:
    story = Story().pod(1.0).bind(1.1).evict(5.0).fence(9.0)
    assert_verdict(run(invariants.evicted_when_due(), story), "unproven: no-anchor", "not met")


@pytest.mark.parametrize(("bound_t", "label"), [(30.5, "conforms"), (35.0, "deviates")])
@pytest.mark.parametrize("is_cordoned", [True, False])
def test_pod_is_not_bound_to_a_closed_node(bound_t: float, label: str, is_cordoned: bool) -> None:
    story = Story().pod(1.0)
    story = story.cordon(30.0) if is_cordoned else story.taint(30.0, effect="NoSchedule")
    assert_verdict(run(invariants.bound_to_open_nodes(), story.bind(bound_t).fence(60.0)), label, NODE)


@pytest.mark.parametrize(("stall_t", "pod"), [(10, "pod second"), (40, "pod third"), (70, "pod second")])
def test_certain_violation_does_not_depend_on_load_at_other_times(stall_t: int, pod: str) -> None:
    story = Story().pod(1.0, "first").pod(1.0, "second").pod(1.0, "third")
    story = story.bind(10.0, "first").taint(20.0, effect="NoSchedule")
    story = story.bind(40.0, "second").bind(70.0, "third")
    for t in range(1, 90):
        story.say(float(t), "stall", late_s=1.2 if t == stall_t else 0.0)
    verdict = judge(CLAIM, invariants.bound_to_open_nodes(), story.fence(90.0).history(), configuration())
    assert_verdict(verdict, "deviates", pod)


@pytest.mark.parametrize(
    ("stall_times", "label", "word"),
    [
        ((40,), "conforms", "held on 2 occasions"),
        ((40,), "conforms", "left out because of load: 1"),
        ((40, 70), "unproven: host-too-loaded", "held on 3 occasions"),
    ],
)
def test_occasions_under_load_prove_nothing(stall_times: Sequence[int], label: str, word: str) -> None:
    story = Story().pod(1.0, "first").pod(1.0, "second").pod(1.0, "third")
    story = story.bind(10.0, "first").bind(40.0, "second").bind(70.0, "third")
    for t in range(1, 90):
        story.say(float(t), "stall", late_s=1.2 if t in stall_times else 0.0)
    verdict = judge(CLAIM, invariants.bound_to_open_nodes(), story.fence(90.0).history(), configuration())
    assert_verdict(verdict, label, word)


def test_violation_under_load_is_uncertain() -> None:
    story = Story().pod(1.0).taint(20.0, effect="NoSchedule").bind(40.0).say(40.0, "stall", late_s=1.2)
    verdict = judge(CLAIM, invariants.bound_to_open_nodes(), story.fence(90.0).history(), configuration())
    assert_verdict(verdict, "unproven: host-too-loaded")


def test_binding_may_be_received_before_its_node_opens() -> None:
    story = Story().pod(1.0).taint(5.0, effect="NoSchedule").bind(30.0).untaint(30.01)
    assert_verdict(run(invariants.bound_to_open_nodes(), story.fence(60.0)), "conforms")


def test_pod_may_be_bound_to_a_node_whose_taint_it_tolerates() -> None:
    story = Story().pod(1.0).taint(2.0, effect="NoSchedule")
    pod = story.object("pods", NAMESPACE, POD)
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    story.change(3.0, "pods", NAMESPACE, POD, pod)
    assert_verdict(run(invariants.bound_to_open_nodes(), story.bind(9.0).fence(60.0)), "conforms")


@pytest.mark.parametrize(
    ("ready_t", "untainted_t", "label"),
    [(50.0, 51.0, "conforms"), (50.0, 75.0, "deviates"), (75.0, 51.0, "deviates")],
)
def test_nodes_are_ready_and_open_in_time(ready_t: float, untainted_t: float, label: str) -> None:
    story = partition().fault(45.0, "healing")
    for t, change in sorted(((ready_t, "ready"), (untainted_t, "untainted"))):
        story = story.condition(t, "True") if change == "ready" else story.untaint(t)
    story.remove(52.0, "pods", NAMESPACE, POD)
    check = recovery.settled(windows.up_to(20.0), after=HEALING)
    assert_verdict(run(check, story.fence(90.0)), label)


def test_node_that_stays_tainted_has_not_recovered() -> None:
    story = partition().fault(45.0, "healing").condition(50.0, "True").remove(52.0, "pods", NAMESPACE, POD)
    check = recovery.settled(windows.up_to(20.0), after=HEALING)
    assert_verdict(run(check, story.fence(90.0)), "deviates", "had the taint", UNREACHABLE)


def test_recording_that_ends_too_early_proves_no_recovery() -> None:
    story = partition().fault(45.0, "healing")
    check = recovery.settled(windows.up_to(60.0), after=HEALING)
    assert_verdict(run(check, story.fence(50.0)), "unproven: gap", "when the recording ended")


@pytest.mark.parametrize(("agreed_s", "label"), [(0.5, "conforms"), (9.0, "deviates"), (None, "deviates")])
def test_taints_follow_a_lasting_change_of_ready(agreed_s: float | None, label: str) -> None:
    story = Story().condition(30.0, "Unknown")
    if agreed_s is not None:
        story.taint(30.0 + agreed_s, effect="NoSchedule")
    assert_verdict(run(invariants.taints_follow_ready(), story.fence(60.0)), label, NODE)


def test_taint_that_a_ready_node_keeps_deviates() -> None:
    story = Story().condition(30.0, "Unknown").taint(30.2, effect="NoSchedule").condition(45.0, "True")
    assert_verdict(run(invariants.taints_follow_ready(), story.fence(60.0)), "deviates", "Ready=True")


def test_stopped_controller_manager_owes_no_taints() -> None:
    story = stopped_manager(Story(), 29.0, 31.0).condition(30.0, "Unknown").fence(60.0)
    assert_verdict(run(invariants.taints_follow_ready(), story), "unproven: no-anchor")


def stopped_manager(story: Story, since_t: float, until_t: float) -> Story:
    fault = {"fault": "power-off", "node": "kube-controller-manager"}
    for t, step in ((since_t, "injecting"), (since_t + 0.1, "injected"), (until_t, "healed")):
        story.say(t, "fault", id="off", fault=fault, node=fault["node"], step=step)
    return story


def cut_off(story: Story, since_t: float, until_t: float) -> Story:
    fault = {"fault": "partition", "node": NODE}
    for t, step in ((since_t, "injected"), (until_t, "healing")):
        story.say(t, "fault", id="lost", fault=fault, node=NODE, step=step)
    return story


def tolerant(toleration_s: float | None) -> Story:
    """Return a story of a pod that tolerates the taint unreachable for so long, or for ever."""
    story = Story().pod(1.0)
    pod = story.object("pods", NAMESPACE, POD)
    seconds = {} if toleration_s is None else {"tolerationSeconds": toleration_s}
    pod["spec"]["tolerations"] = [{"key": UNREACHABLE, "operator": "Exists", **seconds}]
    return story.change(1.05, "pods", NAMESPACE, POD, pod).bind(1.1)


@pytest.mark.parametrize(
    ("toleration_s", "evicted_s", "label"),
    [
        (6.0, 6.2, "conforms"),
        (6.0, 12.0, "deviates"),
        (6.0, None, "deviates"),
        (0.0, None, "deviates"),
        (None, None, "unproven: no-anchor"),
    ],
)
def test_pod_is_evicted_once_its_toleration_is_over(
    toleration_s: float | None, evicted_s: float | None, label: str
) -> None:
    story = tolerant(toleration_s).taint(30.0)
    if evicted_s is not None:
        story.evict(30.0 + evicted_s)
    assert_verdict(run(pod_invariants.evicted_in_time(), story.fence(60.0)), label)


@pytest.mark.parametrize(("evicted_t", "label"), [(46.2, "conforms"), (55.0, "deviates")])
def test_restarted_controller_manager_measures_the_toleration_again(evicted_t: float, label: str) -> None:
    story = stopped_manager(tolerant(6.0).taint(30.0), 33.0, 35.0)
    assert_verdict(run(pod_invariants.evicted_in_time(), story.evict(evicted_t).fence(60.0)), label)


def test_taint_that_goes_before_the_toleration_is_over_is_no_occasion() -> None:
    story = tolerant(6.0).taint(30.0).untaint(35.0)
    assert_verdict(run(pod_invariants.evicted_in_time(), story.fence(60.0)), "unproven: no-anchor")


@pytest.mark.parametrize(
    ("removed_t", "label"),
    [(30.5, "conforms"), (40.0, "deviates"), (55.0, "conforms"), (29.0, "unproven: no-anchor")],
)
def test_pod_of_a_lost_node_is_not_removed(removed_t: float, label: str) -> None:
    story = cut_off(Story().pod(1.0).bind(1.1).evict(25.0), 30.0, 50.0)
    story.remove(removed_t, "pods", NAMESPACE, POD)
    assert_verdict(run(pod_invariants.removed_by_kubelet(), story.fence(60.0)), label)


WORKLOAD = "probe-set"


def member(story: Story, t: float, name: str, ready: str = "True") -> Story:
    """Write a pod of the workload."""
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    body = {"metadata": {"labels": {"workload": WORKLOAD}}, "spec": {}, "status": status}
    return story.change(t, "pods", NAMESPACE, name, body)


def replicas() -> Check:
    return recovery.replicas_available(windows.up_to(20.0), after=HEALING, replicas={WORKLOAD: 2})


@pytest.mark.parametrize(("ready_t", "label"), [(55.0, "conforms"), (85.0, "deviates"), (None, "deviates")])
def test_all_replicas_are_available_in_time(ready_t: float | None, label: str) -> None:
    story = partition().fault(45.0, "healing")
    member(member(story, 46.0, "a"), 46.5, "b", "False")
    if ready_t is not None:
        member(story, ready_t, "b")
    assert_verdict(run(replicas(), story.fence(90.0)), label)


def with_service() -> Story:
    """Return a cluster with a Ready pod of a Service, and its endpoint."""
    story = Story(resources=(*RESOURCES, "endpointslices"))
    story.change(0.5, "endpointslices", NAMESPACE, "sentinel", {})
    return endpoint(member(story, 5.0, "a"), 6.0, ready=True)


def endpoint(story: Story, t: float, *, ready: bool) -> Story:
    """Write the endpoint of the pod."""
    uid = story.object("pods", NAMESPACE, "a")["metadata"]["uid"]
    entry = {"targetRef": {"uid": uid}, "conditions": {"ready": ready}}
    body = {"metadata": {"labels": {"kubernetes.io/service-name": WORKLOAD}}, "endpoints": [entry]}
    return story.change(t, "endpointslices", NAMESPACE, "slice", body)


@pytest.mark.parametrize(("changed_t", "label"), [(31.0, "conforms"), (45.0, "deviates"), (None, "deviates")])
@pytest.mark.parametrize("is_terminating", [True, False])
def test_endpoint_of_a_pod_that_does_not_serve_is_not_ready(
    changed_t: float | None, label: str, is_terminating: bool
) -> None:
    story = with_service()
    story = story.evict(30.0, "a") if is_terminating else member(story, 30.0, "a", "False")
    if changed_t is not None:
        endpoint(story, changed_t, ready=False)
    assert_verdict(run(endpoint_invariants.endpoints_follow_pods(), story.fence(60.0)), label)


@pytest.mark.parametrize(("ready_t", "label"), [(41.0, "conforms"), (55.0, "deviates")])
def test_endpoint_of_a_pod_that_recovers_is_ready(ready_t: float, label: str) -> None:
    story = endpoint(member(with_service(), 25.0, "a", "False"), 26.0, ready=False)
    story = endpoint(member(story, 40.0, "a"), ready_t, ready=True)
    assert_verdict(run(endpoint_invariants.endpoints_follow_pods(), story.fence(80.0)), label)


def test_endpoint_that_goes_with_its_pod_is_not_ready() -> None:
    story = (
        with_service().remove(30.0, "pods", NAMESPACE, "a").remove(30.1, "endpointslices", NAMESPACE, "slice")
    )
    assert_verdict(
        run(endpoint_invariants.endpoints_follow_pods(), story.fence(60.0)), "conforms", "2 occasions"
    )


def test_change_that_does_not_last_is_no_occasion() -> None:
    story = member(member(with_service(), 9.0, "a", "False"), 12.0, "a")
    assert_verdict(run(endpoint_invariants.endpoints_follow_pods(), story.fence(15.0)), "unproven: no-anchor")


def test_stopped_controller_manager_owes_no_endpoints() -> None:
    story = stopped_manager(member(with_service(), 30.0, "a", "False"), 31.0, 55.0)
    assert_verdict(
        run(endpoint_invariants.endpoints_follow_pods(), story.fence(60.0)), "conforms", "1 occasions"
    )


def test_endpoint_of_a_pod_that_serves_stays_ready() -> None:
    story = endpoint(endpoint(with_service(), 20.0, ready=False), 45.0, ready=True)
    assert_verdict(run(endpoint_invariants.endpoints_follow_pods(), story.fence(60.0)), "deviates", "25.0 s")


def late_endpoint(took_s: float, stall: tuple[int, float], sentinel: tuple[int, float]) -> Verdict:
    """Judge a late endpoint on a busy host; `stall` and `sentinel` say in which second, and how long (s)."""
    story = with_service()
    for second in range(9, 50):
        if second == 30:
            member(story, 30.0, "a", "False")
        story.say(second + 0.2, "stall", late_s=stall[1] if second == stall[0] else 0.0)
        story.sentinel(second + 0.4, sentinel[1] if second == sentinel[0] else 0.02)
        if second == int(30.9 + took_s) - 1:
            endpoint(story, 30.0 + took_s, ready=False)
    return judge(
        CLAIM, endpoint_invariants.endpoints_follow_pods(), story.fence(60.0).history(), configuration()
    )


@pytest.mark.parametrize(
    ("took_s", "label"),
    [(4.9, "unproven: host-too-loaded"), (6.4, "unproven: host-too-loaded"), (7.9, "deviates")],
)
def test_load_at_the_time_of_a_violation_makes_it_uncertain(took_s: float, label: str) -> None:
    assert_verdict(late_endpoint(took_s, (30, 0.6), (34, 0.35)), label)


@pytest.mark.parametrize(("took_s", "label"), [(4.9, "conforms"), (5.9, "deviates")])
def test_load_at_another_time_excuses_no_violation(took_s: float, label: str) -> None:
    assert_verdict(late_endpoint(took_s, (9, 0.7), (9, 0.02)), label)
