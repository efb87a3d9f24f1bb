"""A node that comes back before its pods had to leave."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    claims,
    condition_became,
    event_reported,
    needs,
    partition,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)


@claims("eviction.cancelled-on-recovery")
@needs(nodes=2, faulted=1)
def test_pods_stay_when_the_node_recovers_within_their_toleration(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=3 * lab.toleration_s))
    unknown = condition_became(node, "Ready", "Unknown")
    ready_again = condition_became(node, "Ready", "True")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")
    deletion = pod_deletion(pod.namespace, pod.name)
    cancelled = event_reported("TaintManagerEviction", "Pod", pod.name, "Cancelling deletion of Pod")

    with lab.record():
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            lab.wait_for(deletion.never_after(unreachable, windows.absence(lab.toleration_s / 2)))
        lab.wait_for(ready_again.after(cut.healing, windows.recovery()))
        lab.require(ready_again, within_s=3 * lab.toleration_s, after=unreachable)
        revoked = lab.wait_for(cancelled.after(ready_again, windows.monitor_pass()))
        stays = lab.wait_for(deletion.never_after(unreachable, windows.absence(3 * lab.toleration_s + 2)))

    judge("eviction.cancelled-on-recovery", revoked)
    judge("eviction.cancelled-on-recovery", stays)
