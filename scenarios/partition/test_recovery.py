"""A node that comes back before its pods had to leave."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    became,
    claims,
    condition_became,
    event_reported,
    needs,
    next_of,
    partition,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)


@claims("eviction.cancelled-on-recovery", "partition.heal-early")
@needs(nodes=2, faulted=1, lasts="2G + 4R")
def test_pods_stay_when_the_node_recovers_within_their_toleration(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=3 * lab.toleration_s))
    unknown = condition_became(node, "Ready", "Unknown")
    ready_again = condition_became(node, "Ready", "True")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")
    deletion = pod_deletion(pod.namespace, pod.name)
    cancelled = event_reported("TaintManagerEviction", "Pod", pod.name, "Cancelling deletion of Pod")
    well = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    restarted = {"status": {"containerStatuses": [{"restartCount": {"$not": 0}}]}}

    with lab.record():
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            lab.wait_for(deletion.never_after(unreachable, windows.absence(lab.toleration_s / 2)))
        lab.wait_for(ready_again.after(cut.healing, windows.recovery()))
        lab.require(ready_again, within_s=3 * lab.toleration_s, after=unreachable)
        revoked = lab.wait_for(cancelled.after(ready_again, windows.monitor_pass()))
        # Its kubelet may report the pod before the node.
        pod_ready = next_of(became("pods", pod.name, well, pod.namespace), after=cut.healing)
        serves = lab.wait_for(pod_ready.after(cut.healing, windows.recovery()))
        stays = lab.wait_for(deletion.never_after(unreachable, windows.absence(3 * lab.toleration_s + 2)))

    judge("eviction.cancelled-on-recovery", revoked)
    judge("eviction.cancelled-on-recovery", stays)
    anew = became("pods", pod.name, restarted, pod.namespace)
    for check in (serves, stays, anew.never_after(unreachable, windows.absence(3 * lab.toleration_s))):
        judge("partition.heal-early", check)
