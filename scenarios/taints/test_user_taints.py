"""Taints that a user adds to a node: which pods leave and when, and which are scheduled."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, ZONE_LABEL, Node, Pod, tolerates, unique
from nodeproof.scenario.types import Moment, Observation

KEY, SECOND_KEY, EFFECT = "example.com/drained", "example.com/second", "NoExecute"
DEDICATED, SHARED = "example.com/dedicated", "example.com/shared"
VALUE = "nodeproof"
EQUAL = {"key": KEY, "operator": "Equal", "value": VALUE, "effect": EFFECT}
EVICTION_S, SCHEDULING_S = 2, 15
LONG_S, MEDIUM_S, SHORT_S, LATE_S = 20, 10, 5, 4
CANCELLATION_S = 2
FOR_EVER = '[{"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"}]'
Tolerations = Sequence[Sequence[Mapping[str, Any]]]


@needs(nodes=2, faulted=1, duration_s="4R + T + 20")
def test_user_taint_evicts_pods_according_to_tolerations(lab: Lab, claim: Expectations) -> None:
    node, short_s = lab.target, lab.toleration_s
    added = node.taint(KEY, EFFECT).added
    unequal = {**EQUAL, "value": "other"}
    of_other_effect = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}
    by_default = {"key": KEY, "value": VALUE}
    not_tolerant: Tolerations = ([], [unequal], [of_other_effect])
    finite, graceful = claim("taints.user-noexecute-finite"), claim("eviction.graceful-delete")
    evicts = claim("taints.user-noexecute-evicts")

    with lab.record():
        cast = lab.run(actions.run_cast(on=node, namesake_on=lab.others[0]))
        leaving = (*not_tolerant, [tolerates(KEY, -1)], [tolerates(KEY, 0)])
        for_a_while = [tolerates(KEY, short_s)]
        evicted = [lab.run(actions.run_pod(on=node, tolerations=tolerations)) for tolerations in leaving]
        finite_pod, changed_pod, *tolerant_pods = (
            lab.run(actions.run_pod(on=node, tolerations=tolerations))
            for tolerations in (for_a_while, for_a_while, [tolerates(KEY)], [EQUAL], [by_default])
        )
        twin = Pod("kube-system", finite_pod.name, node)
        lab.run(actions.create_pod(twin, tolerations=for_a_while, automountServiceAccountToken=False))
        with lab.inject(faults.taint(node, KEY, EFFECT, VALUE)):
            patch = ("patch", "pod", changed_pod.name, f"--namespace={changed_pod.namespace}")
            change = lab.run(actions.kubectl(*patch, "--type=json", f"--patch={FOR_EVER}"))
            for pod in (*evicted, *cast.pods):
                evicts.expect(pod.deletion, within=EVICTION_S, after=added)
                grace_s = actions.CAST_GRACE_S if pod == cast.patient else 1
                grace = pod.became({"metadata": {"deletionGracePeriodSeconds": grace_s}})
                graceful.expect(grace, within=5, after=pod.deletion)
            due_s = short_s - lab.clear_s
            lab.check_not_due(changed_pod.deletion, change.completed, since=added, due_s=due_s)
            expect_late_pods_evicted(lab, claim)
            expect_scheduling(lab, claim, not_tolerant, [[EQUAL], [tolerates(KEY)]])
            for pod in (finite_pod, twin):
                finite.expect(pod.deletion, within=windows.toleration(short_s), after=added)
            longer = windows.absence_including_anchor(short_s + lab.quiet_s)
            for pod in tolerant_pods:
                finite.never(pod.deletion, throughout=longer, after=added)
            claim("eviction.unlimited-toleration").never(changed_pod.deletion, throughout=longer, after=added)
            claim("eviction.other-nodes-stay").never(cast.namesake.deletion, throughout=longer, after=added)


def expect_late_pods_evicted(lab: Lab, claim: Expectations) -> None:
    """Expect the same of pods that are bound to the node when it has the taint already.

    If the kubelet rejects the first one (TaintToleration) before it is deleted, its removal is the deletion:
    a failed pod has no grace period (pkg/registry/core/pod/strategy.go, CheckGracefulDelete).
    """
    late = lab.run(actions.bound_pod(to=lab.target, tolerations=[]))
    later = lab.run(actions.bound_pod(to=lab.target, tolerations=[tolerates(KEY, LATE_S)]))
    evicts, finite = claim("taints.user-noexecute-evicts"), claim("taints.user-noexecute-finite")
    evicts.expect(late.deletion, within=EVICTION_S, after=late.created)
    finite.expect(later.deletion, within=windows.toleration(LATE_S), after=later.created)


def expect_scheduling(
    lab: Lab, claim: Expectations, not_tolerant: Tolerations, tolerant: Tolerations
) -> None:
    """Expect that only pods with a matching toleration are bound to the node."""
    avoided_pods, allowed_pods = (
        [lab.run(actions.pending_pod(only_on=lab.target, tolerations=tolerations)) for tolerations in group]
        for group in (not_tolerant, tolerant)
    )
    avoids, allows = claim("taints.scheduler-avoids"), claim("taints.toleration-allows")
    for pod in avoided_pods:
        avoids.expect(pod.unschedulable, within=SCHEDULING_S, after=pod.created)
    for pod in allowed_pods:
        allows.expect(pod.bound, within=SCHEDULING_S, after=pod.created)
    for pod in avoided_pods:
        avoids.never(pod.bound, throughout=lab.quiet_s, after=pod.created)


@needs(nodes=3, faulted=2, duration_s="15")
def test_user_taints_evict_pods_without_rate_limit(lab: Lab, claim: Expectations) -> None:
    """The zone's rate limiter would delay the evictions of the second node by 1/E (node-eviction-rate)."""
    first, second = lab.targets
    pods = [lab.run(actions.run_pod(on=node)) for node in (first, second)]
    first_added, second_added = (node.taint(KEY, EFFECT).added for node in (first, second))
    at_once = claim("taints.user-noexecute-not-rate-limited")

    with lab.record():
        # Injection waits for a recorded heartbeat of its node. Waiting here keeps the two taints together.
        for node in (first, second):
            lab.wait_for(node.lease_renewal.after(moments.recording_began(), 2 * lab.configuration["R"]))
        with lab.inject(faults.taint(first, KEY, EFFECT, also=[second])):
            for pod, added in zip(pods, (first_added, second_added), strict=True):
                at_once.expect(pod.deletion, within=1, after=added)
        # Else the result proves nothing: the limiter would have a token for each node.
        lab.require(second_added, within_s=0.5 / lab.configuration["E"], after=first_added)


@needs(nodes=3, faulted=2, duration_s="35")
def test_pod_leaves_when_its_shortest_toleration_is_over(lab: Lab, claim: Expectations) -> None:
    """A pod of another node stays: of its two taints, only the one that it tolerates for ever lasts.

    On a Node without a kubelet, a pod replaces one of its name, and a taint gets another value.
    """
    node, other = lab.targets
    second, brief = node.taint(SECOND_KEY, EFFECT), other.taint(SECOND_KEY, EFFECT)
    evicts = claim("taints.user-noexecute-evicts")

    with lab.record():
        manual_node, bound_pods = taint_manual_node(lab, claim)
        expecting = lab.run(actions.bound_pod(to=manual_node, tolerations=[EQUAL, tolerates(SECOND_KEY)]))
        successor, successor_deletion = replace_pod(lab, manual_node)
        tolerations = [tolerates(KEY, LONG_S), tolerates(SECOND_KEY, SHORT_S)]
        pod = lab.run(actions.run_pod(on=node, tolerations=tolerations))
        tolerations = [tolerates(KEY), tolerates(SECOND_KEY, MEDIUM_S)]
        stays = lab.run(actions.run_pod(on=other, tolerations=tolerations))
        waiting = lab.run(actions.run_pod(on=node, tolerations=[tolerates(KEY, LONG_S)]))
        with (
            lab.inject(faults.taint(node, KEY, EFFECT, also=[other])),
            lab.inject(faults.taint(node, SECOND_KEY, EFFECT)),
        ):
            with lab.inject(faults.taint(other, SECOND_KEY, EFFECT)):
                pass
            due_s = MEDIUM_S - lab.clear_s
            lab.check_not_due(stays.deletion, brief.removed, since=brief.added, due_s=due_s)
            shortest = claim("taints.user-noexecute-shortest")
            cancelled = claim("eviction.cancelled-on-recovery")
            evicts.expect(waiting.deletion, within=EVICTION_S, after=second.added)
            shortest.expect(pod.deletion, within=windows.toleration(SHORT_S), after=second.added)
            cancelled.never(stays.deletion, throughout=MEDIUM_S + 2.0, after=brief.added)
        expect_evictions(claim, manual_node, bound_pods)
        finite = claim("taints.user-noexecute-finite")
        finite.never(successor_deletion, throughout=MEDIUM_S + 2.0, after=successor)
        lab.run(set_taints(manual_node, "other"))
        changed = manual_node.became({"spec": {"taints": [{"key": KEY, "value": "other"}]}})
        evicts.expect(expecting.deletion, within=EVICTION_S, after=changed)


def taint_manual_node(lab: Lab, claim: Expectations) -> tuple[Node, Mapping[Pod, int]]:
    """Give a Node without a kubelet two NoExecute taints in one update; return its pods with their times (s).

    A fault would add one taint after the other.
    """
    node = Node(unique("by-hand"))
    lab.run(actions.create_node(node, {HOSTNAME_LABEL: node, ZONE_LABEL: lab.nodes()[0].zone}))
    lab.run(actions.keep_alive(node))
    expect_taints_by_kubectl(lab, claim, node)
    pods = {
        lab.run(actions.bound_pod(to=node, tolerations=tolerations)): time_s
        for tolerations, time_s in (
            ([tolerates(KEY)], 0),
            ([tolerates(SECOND_KEY)], 0),
            ([tolerates(KEY, LONG_S), tolerates(SECOND_KEY, SHORT_S)], SHORT_S),
            ([tolerates(KEY, SHORT_S), tolerates(SECOND_KEY, LONG_S)], SHORT_S),
        )
    }
    lab.run(set_taints(node, VALUE))
    return node, pods


def expect_taints_by_kubectl(lab: Lab, claim: Expectations, node: Node) -> None:
    """Expect that kubectl changes the taint of one key and effect, and leaves all others."""
    first, second = ({"key": DEDICATED, "value": value, "effect": "NoSchedule"} for value in ("one", "two"))
    preferred = {"key": DEDICATED, "value": "three", "effect": "PreferNoSchedule"}
    shared = {"key": SHARED, "value": "four", "effect": "NoSchedule"}
    no_first, no_dedicated = {"$not": [first]}, {"$not": [{"key": DEDICATED}]}
    add = (f"{DEDICATED}=three:PreferNoSchedule", f"{SHARED}=four:NoSchedule")
    replace = f"{DEDICATED}=two:NoSchedule"
    by_kubectl, succeeds = claim("taints.by-kubectl"), {"status": 0}
    refused = {"status": 1, "stderr": {"$contains": "--overwrite is false"}}

    steps: Sequence[tuple[Sequence[str], Any, Sequence[Any]]] = (
        ((f"{DEDICATED}=one:NoSchedule",), succeeds, [[first]]),
        (add, succeeds, [[first, preferred, shared]]),
        ((replace,), refused, [[first, preferred, shared]]),
        ((replace, "--overwrite"), succeeds, [[second, preferred, shared], no_first]),
        ((f"{DEDICATED}:NoSchedule-",), succeeds, [[preferred, shared], {"$not": [second]}]),
        ((f"{DEDICATED}-",), succeeds, [[shared], no_dedicated]),
    )
    for arguments, answer, patterns in steps:
        command = actions.kubectl("taint", "node", node, *arguments, may_fail=True)
        by_kubectl.expect_value(lab.run(command), answer)
        taints = lab.observe(probes.node_field(node, "spec.taints"))
        for pattern in patterns:
            by_kubectl.expect_value(taints, pattern)


def set_taints(node: Node, value: str) -> actions.Action[Observation]:
    """Return the update of a Node by which it has both taints, the first one with this value."""
    taints = [{"key": KEY, "value": value, "effect": EFFECT}, {"key": SECOND_KEY, "effect": EFFECT}]
    return actions.send_request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})


def replace_pod(lab: Lab, node: Node) -> tuple[Moment, Moment]:
    """Replace a pod whose eviction is pending by one of its name that is due later.

    Returns:
        The creation of the second pod, and its deletion.
    """
    short, long = ([tolerates(KEY, time_s), tolerates(SECOND_KEY)] for time_s in (MEDIUM_S, LONG_S))
    pod = lab.run(actions.bound_pod(to=node, tolerations=short))
    by_force = ("--force", "--grace-period=0")
    deletion = actions.kubectl("delete", "pod", pod.name, f"--namespace={pod.namespace}", *by_force)
    lab.run(deletion)
    # The controller reads the pod by its name: it may take the second one for the first if it is late.
    cancellation = pod.event("TaintManagerEviction", "Cancelling deletion of Pod")
    lab.wait_for(cancellation.after(deletion.begun, CANCELLATION_S))
    lab.check_in_time(lab.find(cancellation) is not None, otherwise="the eviction was not cancelled in time")
    lab.run(actions.create_pod(pod, tolerations=long))
    due_s = MEDIUM_S - lab.clear_s
    successor_deletion = moments.first_after(pod.deletion, after=pod.replacement)
    lab.wait_for(pod.replacement.after(deletion.begun, MEDIUM_S))
    lab.check_not_due(successor_deletion, pod.replacement, since=pod.created, due_s=due_s)
    return pod.replacement, successor_deletion


def expect_evictions(claim: Expectations, node: Node, pods: Mapping[Pod, int]) -> None:
    """Expect that each pod leaves as soon as one of the two taints makes it."""
    added = node.taint(KEY, EFFECT).added
    evicts, finite = claim("taints.user-noexecute-evicts"), claim("taints.user-noexecute-finite")
    for pod, time_s in pods.items():
        if time_s:
            finite.expect(pod.deletion, within=windows.toleration(time_s), after=added)
        else:
            evicts.expect(pod.deletion, within=EVICTION_S, after=added)
