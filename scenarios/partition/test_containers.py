"""Containers of a node that the control plane has given up."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Witness

RECONNECTION_S = 45
"""Longest time until a kubelet drops a dead connection: 30 s and 15 s of HTTP/2, by default."""
GRACE_S = 2


@needs(nodes=2, faulted=1, features=("real-pods",))
def test_containers_of_partitioned_node_run_until_it_recovers(lab: Lab, claim: Expectations) -> None:
    node, deferred_delete = lab.target, claim("partition.deferred-delete")
    (pod,) = lab.run(actions.run_witnesses(Witness(grace_s=GRACE_S, toleration_s=lab.toleration_s), on=node))
    unreachable = node.taint(UNREACHABLE).added

    with lab.record():
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(pod.deletion.after(unreachable, windows.toleration(lab.toleration_s)))
            lab.wait_for(pod.removal.never_after(pod.deletion, windows.pod_gc_pass()))
        deferred_delete.expect(pod.removal, within=RECONNECTION_S + GRACE_S + 10, after=fault.healing_at)
        lab.collect(pod)

    alive = checks.stays_alive(pod.name, pod.deletion, fault.healing_at)
    claim("partition.containers-keep-running").expect_later(alive)
    deferred_delete.expect_later(pod.sigterm, within=RECONNECTION_S, after=fault.healing_at)
