"""Pods of a node that recovers within their toleration."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE


@needs(nodes=2, faulted=1, duration_s="2G + 4R")
def test_pods_stay_if_node_recovers_within_their_toleration(lab: Lab, claim: Expectations) -> None:
    node, tolerated_s = lab.target, 3 * lab.toleration_s
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=tolerated_s))
    unreachable = node.taint(UNREACHABLE, "NoExecute").added
    cancellation = moments.event_reported(
        "TaintManagerEviction", "Pod", pod.name, "Cancelling deletion of Pod"
    )
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    restarted = {"status": {"containerStatuses": [{"restartCount": {"$not": 0}}]}}
    restart = pod.became(restarted)

    with lab.record():
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(node.unknown, windows.taint_pass()))
            lab.wait_for(pod.deletion.never_after(unreachable, windows.absence(lab.toleration_s / 2)))
        lab.wait_for(node.ready.after(fault.healing_at, windows.recovery()))
        lab.require(node.ready, within_s=tolerated_s, after=unreachable)
        claim("eviction.cancelled-on-recovery").expect(
            cancellation, within=windows.monitor_pass(), after=node.ready
        )
        # The kubelet may report the pod before the node.
        pod_ready = moments.first_after(pod.became(ready), after=fault.healing_at)
        claim("partition.heal-early").expect(pod_ready, within=windows.recovery(), after=fault.healing_at)
        no_deletion = claim("eviction.cancelled-on-recovery").never(
            pod.deletion, throughout=windows.absence(tolerated_s + 2), after=unreachable
        )
        claim("partition.heal-early").expect_later(no_deletion)
        claim("partition.heal-early").expect_later(
            restart.never_after(unreachable, windows.absence(tolerated_s))
        )
