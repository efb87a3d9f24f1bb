"""Pods of nodes that lost their power, before and after one node is marked out of service."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import OUT_OF_SERVICE, POD_COLLECTOR, UNREACHABLE, Node, Pod, tolerates
from nodeproof.scenario.sources import audit
from nodeproof.scenario.types import Check, Injection, Moment, Observation

MANAGER, GATE = "kube-controller-manager", "NodeOutOfServiceVolumeDetach"
REMOVED_PODS = 6
"""Four bare pods, one of the StatefulSet and one of the DaemonSet."""
OTHER_KEYS = ("kubernetes.io/out-of-service", "node.kubernetes.io/outofservice")
"""Valid keys that mean nothing."""
POD_GC_PASS_S, STARTS_S = windows.POD_GC_S + 2.0, 60.0
FOREVER_S = 2 * windows.POD_GC_S
DELETED_AFTER_TAINT_S = 12
"""Longer than the time from the first deletions to the taint, so that one deletion comes after it."""
BOTH_NODES_LOST = windows.formula("within", "G + 3P + 2/E + 2", "0", "G + 3P + 2/E + 2 + slack")
"""For two nodes of a zone, one after the other."""


@needs(nodes=3, faulted=2, features=("power",), duration_s="3G + 55")
def test_pods_of_dead_node_stay_until_out_of_service_taint(lab: Lab, claim: Expectations) -> None:
    """One of two nodes gets the taint, with NoSchedule first; the other one does not."""
    pods = pods_on(lab, *lab.targets)
    node, other, ordinal = pods.node, pods.other, pods.stuck_ordinals[0]
    evicted = {"namespace": pods.evicted.namespace, "name": pods.evicted.name}
    removals = audit(verb="delete", resource="pods", user=POD_COLLECTOR, **evicted)
    no_schedule = node.taint(OUT_OF_SERVICE, "NoSchedule")
    no_execute = node.taint(OUT_OF_SERVICE, "NoExecute")

    with lab.record(status_of=ordinal):
        make_workloads(lab, pods)
        expect_no_gate(lab, claim)
        before = counters_of_the_collector(lab, pods.evicted)
        # The power comes back before the taints go.
        with ExitStack() as taints:
            with (
                lab.inject(faults.power_off(other)) as other_fault,
                lab.inject(faults.power_off(node)) as fault,
            ):
                wait_until_lost(lab, pods, other_fault, fault)
                taint_fault = add_taint(lab, taints, node, OUT_OF_SERVICE)
                for key in OTHER_KEYS:
                    add_taint(lab, taints, other, key)
                expect_removal_of_terminating_pods(claim, pods, lab.toleration_s + DELETED_AFTER_TAINT_S)
                taint = faults.taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")
                taints.enter_context(lab.inject(taint))
                lab.run(actions.send_request("DELETE", pods.deleted.path))
                expect_eviction_without_toleration(claim, pods)
                expect_stuck_pods(claim, pods, lab.toleration_s)
                after = counters_of_the_collector(lab, pods.evicted)
            lab.wait_until_ready(node, fault)
            lab.wait_until_ready(other, other_fault)
            expect_replacement_when_the_node_returns(claim, ordinal, other_fault)
            pod = expect_taints_to_stay(lab, claim, node)
        removed = moments.all_of(no_schedule.removed, no_execute.removed)
        claim("out-of-service.manual-removal").expect(pod.bound, within=windows.BIND_S, after=removed)
        lab.collect(removals)

    claim("out-of-service.manual-removal").expect_later(taint_fault.lasted)
    terminating = (ordinal.name, "Terminating", ordinal.deletion, other_fault.healing_at)
    claim("non-graceful.statefulset-stuck").expect_later(checks.shown_throughout(probes.STATUS, *terminating))
    claim("out-of-service.force-deletes").expect_later(checks.counted(removals.request, 1, 1, **fault.span))
    claim("out-of-service.metric").expect_later(grew_by_the_removed_pods(before, after))


@dataclass(frozen=True)
class Pods:
    """The pods of the two nodes whose power is cut; only `node` is marked out of service.

    Args:
        evicted: pod that is terminating before the first taint.
        late_pod: pod whose deletion is due after the first taint.
        unreachable_tolerant: pod that tolerates that its node is unreachable.
        tolerant: pod that tolerates the taints for out of service, too.
        deleted: pod like `tolerant`, which the scenario deletes.
        stuck: pod of `other`.
        stateful: StatefulSet on `node`.
        stuck_stateful: StatefulSet on `other`.
    """

    node: Node
    other: Node
    evicted: Pod
    late_pod: Pod
    unreachable_tolerant: Pod
    tolerant: Pod
    deleted: Pod
    stuck: Pod
    daemons: actions.Workload
    stateful: actions.Workload
    stuck_stateful: actions.Workload

    @property
    def ordinal(self) -> Pod:
        return Pod(self.stateful.namespace, f"{self.stateful.name}-0", self.node)

    @property
    def stuck_ordinals(self) -> Sequence[Pod]:
        pods = self.stuck_stateful
        return [Pod(pods.namespace, f"{pods.name}-{number}", self.other) for number in range(2)]


def pods_on(lab: Lab, node: Node, other: Node) -> Pods:
    tolerated_s = lab.toleration_s
    evicted = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=tolerated_s))
    stuck = lab.run(actions.run_pod(on=other, tolerates_unreachable_s=tolerated_s))
    late_pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=tolerated_s + DELETED_AFTER_TAINT_S))
    unreachable_tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    both = [tolerates(UNREACHABLE), tolerates(OUT_OF_SERVICE)]
    tolerant, deleted = (lab.run(actions.run_pod(on=node, tolerations=both)) for _ in range(2))
    for_a_while = [tolerates(UNREACHABLE, tolerated_s)]
    stateful = actions.workload("StatefulSet", **actions.preferring(node), tolerations=for_a_while)
    stuck_stateful = actions.workload(
        "StatefulSet", replicas=2, **actions.preferring(other), tolerations=for_a_while
    )
    bare = (evicted, late_pod, unreachable_tolerant, tolerant, deleted, stuck)
    return Pods(node, other, *bare, actions.workload("DaemonSet"), stateful, stuck_stateful)


def make_workloads(lab: Lab, pods: Pods) -> None:
    """Make each workload, and wait for its pods on the node."""
    lab.start(pods.daemons, on=pods.node, within_s=STARTS_S)
    lab.start(pods.stateful, on=pods.node, within_s=STARTS_S)
    lab.start(pods.stuck_stateful, on=pods.other, within_s=STARTS_S)
    lab.wait_for(pods.stuck_ordinals[1].running.after(pods.stuck_stateful.make.begun, STARTS_S))


def expect_no_gate(lab: Lab, claim: Expectations) -> None:
    """Expect that the feature gate is not set, and does not exist."""
    gates = lab.observe(probes.flag_of(MANAGER, "feature-gates"))
    other_gates = {"$not": {"$contains": GATE}} if gates.value else {"$in": [None]}
    claim("out-of-service.gate").expect_value(gates, other_gates)
    end = lab.run(actions.try_flags(MANAGER, f"--feature-gates={GATE}=true"))
    unknown = {"status": {"$not": 0}, "stderr": {"$contains": f"unrecognized feature gate: {GATE}"}}
    claim("out-of-service.gate").expect_value(end, unknown)


def wait_until_lost(lab: Lab, pods: Pods, other_fault: Injection, fault: Injection) -> None:
    """Wait until both nodes are unreachable, and the pods that leave are terminating."""
    for node, power in ((pods.other, other_fault), (pods.node, fault)):
        unreachable = node.taint(UNREACHABLE).added
        lab.wait_for(unreachable.after(power.injected_at, BOTH_NODES_LOST))
    for pod in (pods.evicted, pods.ordinal):
        lab.wait_for(pod.deletion.after(unreachable, windows.toleration(lab.toleration_s)))


def add_taint(lab: Lab, taints: ExitStack, node: Node, key: str) -> Injection:
    """Add a taint until the stack is closed; its value means nothing."""
    return taints.enter_context(lab.inject(faults.taint(node, key, "NoSchedule", "of-no-meaning")))


def expect_removal_of_terminating_pods(claim: Expectations, pods: Pods, due_s: int) -> None:
    """Expect that NoSchedule removes pods that are terminating before it, and one that is later.

    `due_s` is the toleration of the later one.
    """
    force_deletes, effect = claim("out-of-service.force-deletes"), claim("out-of-service.effect-noschedule")
    out_of_service = pods.node.taint(OUT_OF_SERVICE, "NoSchedule").added
    evicted = pods.evicted
    late = pods.late_pod
    ordinal = pods.ordinal
    removal_window = windows.pod_gc_removal()

    removal = force_deletes.expect(evicted.removal, within=removal_window, after=out_of_service)
    for expectation in (claim("out-of-service.gate"), claim("out-of-service.key-spelling"), effect):
        expectation.expect_later(removal)
    force_deletes.expect(ordinal.removal, within=removal_window, after=out_of_service)
    force_deletes.expect(evicted.failed, within=removal_window, after=out_of_service)
    force_deletes.expect(evicted.removal, within=windows.afterwards(5), after=evicted.failed)
    force_deletes.expect(ordinal.replacement, within=5.0, after=ordinal.removal)
    unreachable = pods.node.taint(UNREACHABLE).added
    effect.expect(late.deletion, within=windows.toleration(due_s), after=unreachable)
    both = moments.all_of(deletion_request(late), out_of_service)
    effect.expect(late.removal, within=removal_window, after=both)
    for deletion in (pods.unreachable_tolerant.deletion, pods.daemons.deletion):
        absence = effect.never(deletion, throughout=POD_GC_PASS_S, after=out_of_service)
        claim("out-of-service.needs-terminating").expect_later(absence)


def expect_eviction_without_toleration(claim: Expectations, pods: Pods) -> None:
    """Expect that NoExecute evicts and removes pods, and removes one that tolerates it once it is deleted."""
    effect, toleration = claim("out-of-service.effect-noexecute"), claim("out-of-service.toleration")
    out_of_service, removal_window = pods.node.taint(OUT_OF_SERVICE).added, windows.pod_gc_removal()
    evicted, daemons, deleted = pods.unreachable_tolerant, pods.daemons, pods.deleted

    effect.expect(evicted.deletion, within=2.0, after=out_of_service)
    effect.expect(evicted.removal, within=removal_window, after=out_of_service)
    effect.expect(daemons.deletion, within=2.0, after=out_of_service)
    failed = daemons.pod_written(status={"phase": "Failed"})
    effect.expect(failed, within=removal_window, after=out_of_service)
    a_pass = windows.absence_including_anchor(POD_GC_PASS_S)
    toleration.never(pods.tolerant.deletion, throughout=a_pass, after=out_of_service)
    toleration.expect(deleted.removal, within=removal_window, after=deletion_request(deleted))


def expect_stuck_pods(claim: Expectations, pods: Pods, tolerated_s: int) -> None:
    """Expect that pods of the other node are terminating forever, and are not replaced."""
    unreachable, toleration = pods.other.taint(UNREACHABLE).added, windows.toleration(tolerated_s)
    set_stuck, never_returns = claim("non-graceful.statefulset-stuck"), claim("non-graceful.never-returns")
    for pod in pods.stuck_ordinals:
        set_stuck.expect(pod.deletion, within=toleration, after=unreachable)
        for moment in (pod.removal, moments.created("pods", pod.name, pod.namespace)):
            set_stuck.never(moment, throughout=FOREVER_S, after=pod.deletion)
    pod, spelling = pods.stuck, claim("out-of-service.key-spelling")
    never_returns.expect(pod.deletion, within=toleration, after=unreachable)
    never_returns.never(pod.removal, throughout=FOREVER_S, after=pod.deletion)
    for key in OTHER_KEYS:
        both = moments.all_of(deletion_request(pod), pods.other.taint(key, "NoSchedule").added)
        spelling.never(pod.removal, throughout=POD_GC_PASS_S, after=both)


def expect_replacement_when_the_node_returns(claim: Expectations, pod: Pod, fault: Injection) -> None:
    node_returns, successor = claim("non-graceful.node-returns"), pod.replacement
    node_returns.expect(pod.removal, within=windows.recovery(), after=fault.healing_at)
    node_returns.expect(successor, within=5.0, after=pod.removal)
    started = moments.first_after(pod.running, after=successor)
    node_returns.expect(started, within=STARTS_S, after=successor)


def expect_taints_to_stay(lab: Lab, claim: Expectations, node: Node) -> Pod:
    """Expect that a Ready node keeps the taints, and return a pod that waits for their removal."""
    manual_removal, effects = claim("out-of-service.manual-removal"), ("NoSchedule", "NoExecute")
    for effect in effects:
        lab.wait_for(moments.untainted(node, effect).after(node.ready, windows.monitor_pass()))
    pod = lab.run(actions.pending_pod(only_on=node))
    manual_removal.expect(pod.unschedulable, within=5, after=pod.created)
    manual_removal.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
    for effect in effects:
        removal = node.taint(OUT_OF_SERVICE, effect).removed
        manual_removal.never(removal, throughout=lab.quiet_s, after=node.ready)
    return pod


def counters_of_the_collector(lab: Lab, pod: Pod) -> Sequence[Observation]:
    """Observe how many pods of the namespace it tried to remove, and how often that failed."""
    labels = {"namespace": pod.namespace, "reason": "out-of-service"}
    names = ("pod_gc_collector_force_delete_pods_total", "pod_gc_collector_force_delete_pod_errors_total")
    return [lab.observe(probes.metric(MANAGER, name, **labels)) for name in names]


def grew_by_the_removed_pods(before: Sequence[Observation], after: Sequence[Observation]) -> Check:
    """Check that each pod was counted once, and once more for each attempt that failed."""
    count = REMOVED_PODS + (after[1].value or 0) - (before[1].value or 0)
    return checks.grew(before[0], after[0], count, count)


def deletion_request(pod: Pod) -> Moment:
    """Match the request to delete a pod that remains."""
    return pod.became({"metadata": {"deletionTimestamp": {"$present": True}}})
