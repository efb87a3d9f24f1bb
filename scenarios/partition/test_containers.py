"""What the containers of a node do while the control plane has given them up."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    Witness,
    claims,
    condition_became,
    lives_on,
    needs,
    partition,
    pod_deletion,
    pod_gone,
    run_witnesses,
    sigterm,
    taint_added,
    windows,
)

RECONNECTION_S = 45
"""The longest that a kubelet takes to give up a dead connection: 30 s and 15 s of HTTP/2, by default."""
GRACE_S = 2
REMOVAL_S = RECONNECTION_S + GRACE_S + 10


@claims("partition.containers-keep-running", "partition.deferred-delete")
@needs(nodes=2, faulted=1, features=("real-pods",))
def test_containers_of_a_partitioned_node_run_until_it_is_back(lab: Stage, judge: Judge) -> None:
    node = lab.target
    (pod,) = lab.do(run_witnesses(Witness(grace_s=GRACE_S, tolerates_s=lab.toleration_s), on=node))
    unknown = condition_became(node, "Ready", "Unknown")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")
    deletion, removal = pod_deletion(pod.namespace, pod.name), pod_gone(pod.namespace, pod.name)

    with lab.record():
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(deletion.after(unreachable, windows.toleration(lab.toleration_s)))
            lab.wait_for(removal.never_after(deletion, windows.pod_gc_pass()))
        removed = lab.wait_for(removal.after(cut.healing, windows.prompt(REMOVAL_S)))
        lab.hear(pod)

    judge("partition.containers-keep-running", lives_on(pod.name, deletion, cut.healing))
    ends = sigterm(pod.name).after(cut.healing, windows.prompt(RECONNECTION_S))
    judge("partition.deferred-delete", ends)
    judge("partition.deferred-delete", removed)
