"""Pods of nodes that lost their power: what stays, and what goes once a node is called out of service."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nodeproof.model.observation import Observation
from nodeproof.plugin import Judge
from nodeproof.scenario import (
    OUT_OF_SERVICE,
    POD_COLLECTOR,
    PRESENT,
    STATUS,
    UNREACHABLE,
    Audit,
    Check,
    Cut,
    Moment,
    Pod,
    Stage,
    Workload,
    all_came,
    ask,
    audit,
    became,
    claims,
    condition_became,
    counted,
    flag_of,
    grew,
    made,
    metric,
    needs,
    next_of,
    pending_pod,
    pod_bound,
    pod_created,
    pod_deletion,
    pod_gone,
    pod_unschedulable,
    power_off,
    preferring,
    run_pod,
    shown_throughout,
    shows,
    taint,
    taint_added,
    taint_removed,
    tolerates,
    try_flags,
    untainted,
    windows,
    workload,
    written,
)

VALUE = "nodeshutdown"
EFFECTS = ("NoSchedule", "NoExecute")
MANAGER, GATE = "kube-controller-manager", "NodeOutOfServiceVolumeDetach"
REMOVALS = "pod_gc_collector_force_delete_pods_total", "pod_gc_collector_force_delete_pod_errors_total"
"""Each try is counted, and each that fails once more."""
REMOVED = 6
"""Four bare pods, one of the StatefulSet and one of the DaemonSet."""
PODS = "/api/v1/namespaces/nodeproof/pods"
COLLECTED = windows.formula("within", "20 + 5", "-slack", "20 + 5 + slack")
"""A pass of it (windows.POD_GC_S), and what that takes."""
A_PASS_S = windows.POD_GC_S + 2.0
STUCK_S = 2 * windows.POD_GC_S
"""For ever, as far as a scenario waits."""
LATER_S = 12
"""Longer than it takes from the first deletions to the taint, so that one comes after it."""
LOST = windows.formula("within", "G + 3P + 2/E + 2", "0", "G + 3P + 2/E + 2 + slack")
"""For two of a zone, one after the other."""
STARTS_S, AT_ONCE_S, REPLACED_S = 60.0, 2.0, 5.0
Checks = Mapping[str, Sequence[Check]]


def leaving(pods: Workload) -> Moment:
    return written("pods", {"metadata": {**pods.pods["metadata"], "deletionTimestamp": PRESENT}})


def gone(pod: Pod) -> Moment:
    return pod_gone(pod.namespace, pod.name)


def deletion(pod: Pod) -> Moment:
    return pod_deletion(pod.namespace, pod.name)


def terminating(pod: Pod) -> Moment:
    """Its deletion is asked for, and it is there still."""
    return became("pods", pod.name, {"metadata": {"deletionTimestamp": PRESENT}}, pod.namespace)


def of(pods: Workload, ordinal: int, node: str) -> Pod:
    return Pod(pods.namespace, f"{pods.name}-{ordinal}", node)


def anew(pod: Pod) -> Moment:
    return next_of(made("pods", pod.name, pod.namespace), after=gone(pod))


def about_a_node_that_nobody_tells_of(bare: Pod, ordinals: Sequence[Pod], tolerated_s: int) -> Checks:
    tainted, longer = taint_added(bare.node, UNREACHABLE, "NoExecute"), windows.absence(STUCK_S)
    asked, leaves = windows.toleration(tolerated_s), [bare, *ordinals]
    first = {pod.name: deletion(pod).after(tainted, asked) for pod in leaves}
    stays = {pod.name: gone(pod).never_after(deletion(pod), longer) for pod in leaves}
    second = [made("pods", pod.name, pod.namespace).never_after(deletion(pod), longer) for pod in ordinals]
    of_ordinals = [each[pod.name] for pod in ordinals for each in (first, stays)]
    return {
        "non-graceful.statefulset-stuck": [*of_ordinals, *second],
        "non-graceful.never-returns": [first[bare.name], stays[bare.name]],
    }


def about_no_schedule(leaves: Sequence[Pod], late: Pod, stays: Pod, daemons: Workload, due_s: int) -> Checks:
    """Who was to be deleted before the taint is removed, who is to be after it leaves in its time."""
    node = late.node
    unreachable, tainted = (
        taint_added(node, UNREACHABLE, "NoExecute"),
        taint_added(node, OUT_OF_SERVICE, "NoSchedule"),
    )
    a_pass = windows.absence(A_PASS_S)
    failed = became("pods", leaves[0].name, {"status": {"phase": "Failed"}}, leaves[0].namespace)
    collected = [gone(pod).after(tainted, COLLECTED) for pod in leaves]
    later = [
        deletion(late).after(unreachable, windows.toleration(due_s)),
        gone(late).after(all_came(terminating(late), tainted), COLLECTED),
    ]
    kept = [deletion(stays).never_after(tainted, a_pass), leaving(daemons).never_after(tainted, a_pass)]
    by_force = [failed.after(tainted, COLLECTED), gone(leaves[0]).after(failed, windows.afterwards(5))]
    freed = [anew(pod).after(gone(pod), windows.prompt(REPLACED_S)) for pod in leaves[1:]]
    return {
        "out-of-service.force-deletes": [*collected, *by_force, *freed],
        "out-of-service.gate": [collected[0]],
        "out-of-service.effect-noschedule": [collected[0], *later, *kept],
        "out-of-service.needs-terminating": kept,
    }


def about_no_execute(goes: Pod, daemons: Workload, tolerant: Pod, asked: Pod) -> Checks:
    tainted, at_once = taint_added(goes.node, OUT_OF_SERVICE, "NoExecute"), windows.prompt(AT_ONCE_S)
    failed = written("pods", {**daemons.pods, "status": {"phase": "Failed"}})
    return {
        "out-of-service.effect-noexecute": [
            deletion(goes).after(tainted, at_once),
            gone(goes).after(tainted, COLLECTED),
            leaving(daemons).after(tainted, at_once),
            failed.after(tainted, COLLECTED),
        ],
        "out-of-service.toleration": [
            deletion(tolerant).never_after(tainted, windows.absence_from_before(A_PASS_S)),
            gone(asked).after(terminating(asked), COLLECTED),
        ],
    }


def about_a_node_that_returns(ordinal: Pod, boot: Cut) -> Checks:
    again, soon = anew(ordinal), windows.prompt(REPLACED_S)
    return {
        "non-graceful.node-returns": [
            gone(ordinal).after(boot.healing, windows.recovery()),
            again.after(gone(ordinal), soon),
            next_of(runs(ordinal), after=again).after(again, windows.prompt(STARTS_S)),
        ]
    }


def wait(lab: Stage, promised: Checks) -> list[tuple[str, Check]]:
    """For each of them; gives them, with their claims."""
    checks = [(claim, check) for claim, several in promised.items() for check in several]
    for _claim, check in checks:
        lab.wait_for(check)
    return checks


def removals_by_the_collector(pod: Pod) -> Audit:
    return audit(verb="delete", resource="pods", namespace=pod.namespace, name=pod.name, user=POD_COLLECTOR)


def runs_on(lab: Stage, pods: Workload, node: str) -> None:
    """Make a workload, and wait for a pod of it there."""
    lab.do(pods.make)
    running = written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    lab.wait_for(running.after(pods.make.begun, windows.prompt(STARTS_S)))


def runs(pod: Pod) -> Moment:
    return became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)


def about_a_taint_that_is_left(lab: Stage, node: str) -> list[Check]:
    """On a node that is Ready again: a pod for it, and how it waits."""
    ready, quiet = condition_became(node, "Ready", "True"), windows.absence(lab.quiet_s)
    for effect in EFFECTS:
        lab.wait_for(untainted(node, effect).after(ready, windows.monitor_pass()))
    pod = lab.do(pending_pod(only_on=node))
    asked, bound = pod_created(pod.namespace, pod.name), pod_bound(pod.namespace, pod.name)
    removed = [taint_removed(node, OUT_OF_SERVICE, effect) for effect in EFFECTS]
    checks = [
        pod_unschedulable(pod.namespace, pod.name).after(asked, windows.prompt(5)),
        bound.never_after(asked, quiet),
        *(each.never_after(ready, quiet) for each in removed),
    ]
    for check in checks:
        lab.wait_for(check)
    lab.wait_for(bound.never_after(asked, windows.absence(lab.quiet_s + lab.clear_s)))
    return [*checks, bound.after(all_came(*removed), windows.prompt(windows.BIND_S))]


@dataclass(frozen=True)
class Pods:
    """What is on the two nodes before their power goes; of `other` nobody tells that it is out of service."""

    node: str
    other: str
    leaves: Pod
    late: Pod
    stays: Pod
    tolerant: Pod
    asked: Pod
    left: Pod
    daemons: Workload
    moves: Workload
    waits: Workload

    @property
    def moved(self) -> Pod:
        return of(self.moves, 0, self.node)

    @property
    def ordinals(self) -> Sequence[Pod]:
        return [of(self.waits, ordinal, self.other) for ordinal in range(2)]


def pods_on(lab: Stage, node: str, other: str) -> Pods:
    tolerated_s = lab.toleration_s
    leaves, left = (lab.do(run_pod(on=name, tolerates_unreachable_s=tolerated_s)) for name in (node, other))
    late = lab.do(run_pod(on=node, tolerates_unreachable_s=tolerated_s + LATER_S))
    stays = lab.do(run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    all_of_it = [tolerates(UNREACHABLE), tolerates(OUT_OF_SERVICE)]
    tolerant, asked = (lab.do(run_pod(on=node, tolerations=all_of_it)) for _each in range(2))
    for_a_while = [tolerates(UNREACHABLE, tolerated_s)]
    moves = workload("StatefulSet", **preferring(node), tolerations=for_a_while)
    waits = workload("StatefulSet", replicas=2, **preferring(other), tolerations=for_a_while)
    bare = (leaves, late, stays, tolerant, asked, left)
    return Pods(node, other, *bare, workload("DaemonSet"), moves, waits)


def make_workloads(lab: Stage, pods: Pods) -> None:
    for each, on in ((pods.daemons, pods.node), (pods.moves, pods.node), (pods.waits, pods.other)):
        runs_on(lab, each, on)
    lab.wait_for(runs(pods.ordinals[1]).after(pods.waits.make.begun, windows.prompt(STARTS_S)))


def call_out_of_service(lab: Stage, pods: Pods, taints: ExitStack) -> tuple[Cut, list[tuple[str, Check]]]:
    """The node, with one effect and then with the other; gives the first taint, and what was to come."""
    node = pods.node
    out = taints.enter_context(lab.inject(taint(node, OUT_OF_SERVICE, "NoSchedule", VALUE)))
    leaves, due_s = (pods.leaves, pods.moved), lab.toleration_s + LATER_S
    checks = wait(lab, about_no_schedule(leaves, pods.late, pods.stays, pods.daemons, due_s))
    tainted, longer = taint_added(node, OUT_OF_SERVICE, "NoSchedule"), windows.absence(A_PASS_S + lab.clear_s)
    lab.wait_for(deletion(pods.stays).never_after(tainted, longer))
    taints.enter_context(lab.inject(taint(node, OUT_OF_SERVICE, "NoExecute", VALUE)))
    lab.do(ask("DELETE", f"{PODS}/{pods.asked.name}"))
    checks += wait(lab, about_no_execute(pods.stays, pods.daemons, pods.tolerant, pods.asked))
    return out, checks


def leave_alone(lab: Stage, pods: Pods) -> list[tuple[str, Check]]:
    """The node of which nobody tells."""
    checks = wait(lab, about_a_node_that_nobody_tells_of(pods.left, pods.ordinals, lab.toleration_s))
    longer = windows.absence(STUCK_S + lab.clear_s)
    for pod in (*pods.ordinals, pods.left):
        lab.wait_for(gone(pod).never_after(deletion(pod), longer))
    return checks


def wait_until_lost(lab: Stage, pods: Pods, dark: Cut, off: Cut) -> None:
    """Both nodes, and until the pods that leave are asked to."""
    for name, cut in ((pods.other, dark), (pods.node, off)):
        unreachable = taint_added(name, UNREACHABLE, "NoExecute")
        lab.wait_for(unreachable.after(cut.began, LOST))
    for pod in (pods.leaves, pods.moved):
        lab.wait_for(deletion(pod).after(unreachable, windows.toleration(lab.toleration_s)))


def counted_by_the_collector(lab: Stage, pod: Pod) -> Sequence[Observation]:
    """What it tried to remove where the pod is, and how often that failed."""
    chosen = {"namespace": pod.namespace, "reason": "out-of-service"}
    return [lab.look(metric(MANAGER, name, **chosen)) for name in REMOVALS]


def removals(before: Sequence[Observation], after: Sequence[Observation]) -> Check:
    """Each pod is counted once, and once more for each try that failed."""
    many = REMOVED + (after[1].value or 0) - (before[1].value or 0)
    return grew(before[0], after[0], many, many)


def about_the_gate(lab: Stage) -> list[Check]:
    """It is not set, and cannot be."""
    gates = lab.look(flag_of(MANAGER, "feature-gates"))
    refused = lab.do(try_flags(MANAGER, f"--feature-gates={GATE}=true"))
    unknown = {"status": {"$not": 0}, "stderr": {"$contains": f"unrecognized feature gate: {GATE}"}}
    return [shows(gates, {"$in": [None]}), shows(refused, unknown)]


@claims(
    *(f"non-graceful.{name}" for name in ("statefulset-stuck", "never-returns", "node-returns")),
    *(f"out-of-service.{name}" for name in ("force-deletes", "effect-noschedule", "effect-noexecute")),
    *(f"out-of-service.{name}" for name in ("needs-terminating", "toleration", "manual-removal")),
    *("out-of-service.metric", "out-of-service.gate"),
)
@needs(nodes=3, faulted=2, features=("power",), lasts="3G + 55")
def test_pods_of_a_dead_node_stay_until_it_is_called_out_of_service(lab: Stage, judge: Judge) -> None:
    """Of two such nodes one is tainted by hand, with NoSchedule first; nobody tells of the other."""
    pods = pods_on(lab, *lab.targets)
    first, by_collector = pods.ordinals[0], removals_by_the_collector(pods.leaves)

    with lab.record(status_of=first):
        make_workloads(lab, pods)
        about_gate = about_the_gate(lab)
        before = counted_by_the_collector(lab, pods.leaves)
        # The power comes back before the taints go.
        with ExitStack() as taints:
            with lab.inject(power_off(pods.other)) as dark, lab.inject(power_off(pods.node)) as off:
                wait_until_lost(lab, pods, dark, off)
                out, checks = call_out_of_service(lab, pods, taints)
                checks += leave_alone(lab, pods)
                after = counted_by_the_collector(lab, pods.leaves)
            for name, cut in ((pods.node, off), (pods.other, dark)):
                ready = condition_became(name, "Ready", "True")
                lab.wait_for(ready.after(cut.healing, windows.recovery()))
            checks += wait(lab, about_a_node_that_returns(first, dark))
            kept_off = about_a_taint_that_is_left(lab, pods.node)
        lab.wait_for(kept_off[-1])
        lab.hear(by_collector)

    for claim, check in checks:
        judge(claim, check)
    for check in (*kept_off, out.lasted):
        judge("out-of-service.manual-removal", check)
    for check in about_gate:
        judge("out-of-service.gate", check)
    throughout = shown_throughout(STATUS, first.name, "Terminating", deletion(first), dark.healing)
    judge("non-graceful.statefulset-stuck", throughout)
    once = counted(by_collector.request, 1, 1, after=off.began, until=off.healing)
    judge("out-of-service.force-deletes", once)
    judge("out-of-service.metric", removals(before, after))
