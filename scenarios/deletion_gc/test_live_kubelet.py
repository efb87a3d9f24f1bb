"""Containers of a node whose Node is deleted while its kubelet lives."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    Witness,
    claims,
    last_sign,
    made,
    needs,
    next_of,
    node_deleted,
    pod_gone,
    removed,
    run_witnesses,
    sigterm,
    wait_out_orphans_quarantine,
    windows,
)

OWN_GRACE_S, SOON_S, ENDED_S = 8, 15, 30
FLOOR_S = 2
"""What a container has at least, and all that it has where the object was removed by force, without any grace
(minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go).
"""


@claims("deletion-gc.live-kubelet-kills")
@needs(nodes=2, faulted=1, features=("real-pods",), lasts="150")
def test_a_kubelet_whose_node_is_deleted_ends_its_pods_when_their_objects_are_gone(
    lab: Stage, judge: Judge
) -> None:
    """The collector removes objects without grace; a container that is deaf to SIGTERM has 2 s of its 8."""
    node = lab.target
    lab.do(wait_out_orphans_quarantine(node))
    (pod,) = lab.do(run_witnesses(Witness(grace_s=OWN_GRACE_S, deaf=True), on=node))
    away, gone = removed("nodes", node), pod_gone(pod.namespace, pod.name)
    back = next_of(made("nodes", node), after=away)

    with lab.record(), lab.inject(node_deleted(node, lab.labels(node))):
        collected = lab.wait_for(gone.after(away, windows.quarantine()))
        # Nothing in the API tells of a container any more.
        lab.wait_for(back.never_after(gone, windows.absence(ENDED_S)))
        lab.hear(pod)

    for check in (
        collected,
        sigterm(pod.name).after(gone, windows.prompt(SOON_S)),
        last_sign(pod.name).after(sigterm(pod.name), windows.grace_period(FLOOR_S)),
    ):
        judge("deletion-gc.live-kubelet-kills", check)
