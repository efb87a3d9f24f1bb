"""What becomes of a Node's pods, and of its Lease, when the Node is deleted."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    became,
    claims,
    event_reported,
    made,
    metric,
    needs,
    next_of,
    node_deleted,
    own_namespace,
    pod_gone,
    preferring,
    removed,
    run_pod,
    shows,
    wait_out_orphans_quarantine,
    windows,
    workload,
    written,
)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REMOVED = "pod_gc_collector_force_delete_pods_total"
STARTS_S, PLACED_S = 60.0, 15.0
EARLY_S, COLLECTED_S = 20.0, 85.0
"""Back before any quarantine may end, and longer than the longest takes."""


@claims(
    "deletion-gc.pods-removed",
    "deletion-gc.names-freed",
    "deletion-gc.failed-phase-first",
    "deletion-gc.force-metric",
    "deletion-gc.event",
    "deletion-gc.lease-removed",
    "deletion-gc.quarantine-cancel",
    "heartbeat.lease-owner",
)
@needs(nodes=3, faulted=2, lasts="110")
def test_pods_and_lease_of_a_deleted_node_are_removed_after_a_quarantine(lab: Stage, judge: Judge) -> None:
    """Its kubelet goes on, and does not make its Node again by itself.

    The collector looks each 20 s, and removes what it missed for 40 s (gcCheckPeriod and quarantineTime in
    pkg/controller/podgc/gc_controller.go): from 40 to 80 s after the deletion.
    """
    node, early = lab.targets
    lab.do(wait_out_orphans_quarantine(node, early))
    pod, kept = lab.do(run_pod(on=node)), lab.do(run_pod(on=early))
    # The counter tells namespaces apart, and in the one that all scenarios have others may lose Nodes, too.
    place = own_namespace()
    ordinal = workload("StatefulSet", namespace=place.name, **preferring(node))
    first = f"{ordinal.name}-0"
    away, gone = removed("nodes", node), pod_gone(pod.namespace, pod.name)
    again = next_of(made("pods", first, ordinal.namespace), after=away)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    failed = became("pods", pod.name, {"status": {"phase": "Failed", "conditions": [target]}}, pod.namespace)
    early_away, never = removed("nodes", early), pod_gone(kept.namespace, kept.name)
    ended = event_reported("RemovingNode", "Node", node, "")
    freed = windows.formula("within", f"80 + {PLACED_S}", "-slack", f"80 + {PLACED_S} + slack")
    counter = metric("kube-controller-manager", REMOVED, reason="orphaned", namespace=place.name)

    with lab.record():
        lab.do(place.make)
        lab.do(ordinal.make)
        running = written(
            "pods", {**ordinal.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
        )
        lab.wait_for(running.after(ordinal.make.begun, windows.prompt(STARTS_S)))
        lease = lab.do(ask("GET", f"{LEASES}/{node}"))
        with lab.inject(node_deleted(early, lab.labels(early))):
            lab.wait_for(never.never_after(early_away, windows.absence(EARLY_S)))
        with lab.inject(node_deleted(node, lab.labels(node))):
            promised = {
                "deletion-gc.event": [ended.after(away, windows.monitor_pass())],
                "deletion-gc.lease-removed": [
                    removed("leases", node, "kube-node-lease").after(away, windows.prompt(60))
                ],
                "deletion-gc.failed-phase-first": [
                    failed.after(away, windows.quarantine()),
                    gone.after(failed, windows.afterwards(5)),
                ],
                "deletion-gc.pods-removed": [gone.after(away, windows.quarantine())],
                "deletion-gc.quarantine-cancel": [
                    never.never_after(early_away, windows.absence(COLLECTED_S))
                ],
                "deletion-gc.names-freed": [again.after(away, freed)],
            }
            checks = [(claim, check) for claim, each in promised.items() for check in each]
            for _claim, check in checks:
                lab.wait_for(check)
            collected = lab.look(counter)

    for claim, check in checks:
        judge(claim, check)
        if claim == "deletion-gc.lease-removed":
            judge("heartbeat.lease-owner", check)
    judge("deletion-gc.force-metric", shows(collected, 1))
    owner = {"body": {"metadata": {"ownerReferences": [{"kind": "Node", "name": node}]}}}
    judge("heartbeat.lease-owner", shows(lease, owner))
