"""Pods of a node that the control plane cannot reach: which it deletes, when and how, and which stay."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    UNREACHABLE,
    Check,
    Cut,
    Moment,
    Pod,
    Stage,
    Workload,
    audit,
    became,
    claims,
    condition_became,
    condition_said,
    counted,
    disruption_budget,
    event_reported,
    grew,
    made,
    metric,
    needs,
    next_of,
    partition,
    pending_pod,
    pod_bound,
    pod_created,
    pod_deletion,
    pod_unschedulable,
    preferring,
    run_pod,
    taint_added,
    tolerates,
    windows,
    workload,
    written,
)

MANAGER = "kube-controller-manager"
WHY = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
STARTS_S = 60.0
ONE_UPDATE_S = 1.0
EVICTIONS = "node_collector_evictions_total"
MARK = {"type": "DisruptionTarget", "reason": "DeletionByTaintManager"}
Checks = Mapping[str, Sequence[Check]]


def leaving(pods: Workload) -> Moment:
    return written("pods", {"metadata": {**pods.pods["metadata"], "deletionTimestamp": PRESENT}})


def about_the_node(node: str, cut: Cut) -> Checks:
    unknown = condition_became(node, "Ready", "Unknown")
    about = {"kind": "Node", "name": node}
    by_its_controller = {"reason": "NodeNotReady", "source": {"component": "node-controller"}}
    noticed = written("events", {**by_its_controller, "involvedObject": about})
    pressure = [
        condition_said(node, f"{kind}Pressure", "Unknown", *WHY) for kind in ("Memory", "Disk", "PID")
    ]
    return {
        "conditions.pressure-unknown-when-unreachable": [
            each.after(unknown, windows.prompt(ONE_UPDATE_S)) for each in pressure
        ],
        "monitoring.not-ready-event": [
            noticed.after(unknown, windows.prompt(2)),
            counted(noticed, 1, 1, after=cut.began, until=cut.healing),
        ],
    }


def about_a_pod_that_leaves(pod: Pod, node: str, tolerated_s: int, cut: Cut) -> Checks:
    unknown, tainted = condition_became(node, "Ready", "Unknown"), taint_added(node, UNREACHABLE, "NoExecute")
    deletion, leaves = pod_deletion(pod.namespace, pod.name), windows.toleration(tolerated_s)
    latest = f"G + 3P + max(P, 1/E) + 1 + {tolerated_s}"
    of_loss = windows.formula(
        "period", f"G + {tolerated_s}", f"G - 1.04R + {tolerated_s} - slack", f"{latest} + slack"
    )
    evicted = event_reported("TaintManagerEviction", "Pod", pod.name, "Marking for deletion")

    def becomes(pattern: Any) -> Moment:
        return became("pods", pod.name, pattern, pod.namespace)

    unready = becomes({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    marked = becomes({"status": {"conditions": [{**MARK, "status": "True"}]}})
    graceful = next_of(becomes({"metadata": {"deletionGracePeriodSeconds": 1}}), after=tainted)
    return {
        "conditions.pods-marked-not-ready": [unready.after(unknown, windows.monitor_pass())],
        "eviction.end-to-end-time": [deletion.after(cut.began, of_loss)],
        "eviction.graceful-delete": [graceful.after(tainted, leaves)],
        "eviction.disruption-target": [marked.after(tainted, leaves)],
        "eviction.event": [
            evicted.after(tainted, leaves),
            counted(evicted, 1, 1, after=cut.began, until=cut.healing),
        ],
        "daemonset.not-evicted-on-node-failure": [deletion.after(tainted, leaves)],
    }


def about_those_that_stay(stays: Pod, daemons: Workload, node: str, tolerated_s: int) -> Checks:
    tainted, longer = (
        taint_added(node, UNREACHABLE, "NoExecute"),
        windows.absence_from_before(tolerated_s + 5.0),
    )
    return {
        "eviction.unlimited-toleration": [
            pod_deletion(stays.namespace, stays.name).never_after(tainted, longer)
        ],
        "daemonset.not-evicted-on-node-failure": [leaving(daemons).never_after(tainted, longer)],
    }


def about_controllers(
    replaced: Workload, ordinal: Workload, node: str, tolerated_s: int, quiet_s: float
) -> Checks:
    """A Deployment makes another pod at once, a StatefulSet none as long as the first is there."""
    tainted = taint_added(node, UNREACHABLE, "NoExecute")
    elsewhere = {**replaced.pods, "spec": {"nodeName": {"$not": {"$in": [None, node]}}}}
    placed, runs = written("pods", elsewhere), written("pods", {**elsewhere, "status": {"phase": "Running"}})
    second = made("pods", f"{ordinal.name}-0", ordinal.namespace)
    return {
        "eviction.api-initiated": [leaving(replaced).after(tainted, windows.toleration(tolerated_s))],
        "eviction.replacement": [
            placed.after(leaving(replaced), windows.prompt(5)),
            runs.after(placed, windows.prompt(STARTS_S)),
        ],
        "partition.statefulset-no-duplicate": [
            second.never_after(leaving(ordinal), windows.absence(quiet_s))
        ],
    }


def about_a_pod_for_the_node(pod: Pod, quiet_s: float) -> Checks:
    asked = pod_created(pod.namespace, pod.name)
    return {
        "scheduling.unhealthy-node-avoided": [
            pod_unschedulable(pod.namespace, pod.name).after(asked, windows.prompt(5)),
            pod_bound(pod.namespace, pod.name).never_after(asked, windows.absence(quiet_s)),
        ]
    }


@claims(
    "conditions.pressure-unknown-when-unreachable",
    "conditions.pods-marked-not-ready",
    "monitoring.not-ready-event",
    "monitoring.recovery",
    "scheduling.unhealthy-node-avoided",
    "eviction.end-to-end-time",
    "eviction.unlimited-toleration",
    "eviction.graceful-delete",
    "eviction.api-initiated",
    "eviction.disruption-target",
    "eviction.event",
    "eviction.replacement",
    "eviction.metrics",
    "daemonset.not-evicted-on-node-failure",
    "partition.statefulset-no-duplicate",
)
@needs(nodes=3, faulted=1, lasts="G + T + 4P + 40")
def test_pods_of_an_unreachable_node_are_deleted_unless_they_tolerate_that(lab: Stage, judge: Judge) -> None:
    node, tolerated_s = lab.target, lab.toleration_s
    zone = next(entry.zone for entry in lab.nodes() if entry.name == node)
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=tolerated_s))
    stays = lab.do(run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    daemons = workload("DaemonSet")
    replaced, ordinal = (
        workload(kind, **preferring(node), tolerations=[tolerates(UNREACHABLE, tolerated_s)])
        for kind in ("Deployment", "StatefulSet")
    )
    the_pod = {"resource": "pods", "name": pod.name, "namespace": pod.namespace}
    deleted = audit(verb="delete", user={"$not": f"system:node:{node}"}, **the_pod)
    by_eviction = audit(verb="create", subresource="eviction", **the_pod)
    counter = metric(MANAGER, EVICTIONS, zone=f":\x00:{zone}")
    unknown, ready_again = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))

    with lab.record():
        for each in (daemons, replaced, ordinal):
            lab.do(each.make)
            running = written(
                "pods", {**each.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
            )
            lab.wait_for(running.after(each.make.begun, windows.prompt(STARTS_S)))
        lab.do(disruption_budget(replaced))
        before = lab.look(counter)
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            kept_off = taint_added(node, UNREACHABLE, "NoSchedule")
            lab.wait_for(kept_off.after(unknown, windows.prompt(5)))
            waiting = lab.do(pending_pod(only_on=node))
            promised = [
                about_the_node(node, cut),
                about_a_pod_that_leaves(pod, node, tolerated_s, cut),
                about_controllers(replaced, ordinal, node, tolerated_s, lab.quiet_s),
                about_a_pod_for_the_node(waiting, lab.quiet_s),
                about_those_that_stay(stays, daemons, node, tolerated_s),
            ]
            checks = [(claim, check) for about in promised for claim, each in about.items() for check in each]
            for _claim, check in checks:
                if check.name != "counted":
                    lab.wait_for(check)
            after = lab.look(counter)
        back = lab.wait_for(ready_again.after(cut.healing, windows.recovery()))
        lab.hear(deleted, by_eviction)

    for claim, check in checks:
        judge(claim, check)
    judge("monitoring.recovery", back)
    judge("eviction.api-initiated", counted(deleted.request, 1, 1, after=cut.began, until=cut.healing))
    judge("eviction.api-initiated", counted(by_eviction.request, 0, 0, after=cut.began, until=cut.healing))
    # The taint may be written twice, and each time is counted.
    judge("eviction.metrics", grew(before, after, 1, 2))
