"""Pods of a node that recovers within their toleration."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, tolerates


@needs(nodes=2, faulted=1, duration_s="2G + 4R")
def test_pods_stay_if_node_recovers_within_their_toleration(lab: Lab, claim: Expectations) -> None:
    node, tolerated_s = lab.target, 3 * lab.toleration_s
    tolerations = [tolerates(UNREACHABLE, tolerated_s)]
    cast = lab.run(actions.run_cast(on=node, namesake_on=lab.others[0], tolerations=tolerations))
    unreachable = node.taint(UNREACHABLE).added
    cancelled, healed_early = claim("eviction.cancelled-on-recovery"), claim("partition.heal-early")

    with lab.record():
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(unreachable.after(node.unknown, windows.taint_pass()))
            lab.wait_for(cast.patient.deletion.never_after(unreachable, lab.toleration_s / 2))
        lab.wait_until_ready(node, fault)
        lab.require(node.ready, within_s=tolerated_s, after=unreachable)
        for pod in cast.pods:
            # A recording has no messages of events of kube-system.
            message = "" if pod == cast.system else "Cancelling deletion of Pod"
            cancellation = pod.event("TaintManagerEviction", message)
            cancelled.expect(cancellation, within=windows.monitor_pass(), after=node.ready)
            # The kubelet may report the pod before the node.
            ready = pod.became({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            pod_ready = moments.first_after(ready, after=fault.healing_at)
            healed_early.expect(pod_ready, within=windows.recovery(), after=fault.healing_at)
        for pod in cast.pods:
            no_deletion = cancelled.never(pod.deletion, throughout=tolerated_s + 2, after=unreachable)
            healed_early.expect_later(no_deletion)
            restart = pod.became({"status": {"containerStatuses": [{"restartCount": {"$not": 0}}]}})
            no_restart = restart.never_after(unreachable, tolerated_s)
            healed_early.expect_later(no_restart)
