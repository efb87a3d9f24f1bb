"""Containers of a node whose Node is deleted while its kubelet runs."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import Witness

OWN_GRACE_S, SOON_S, CONTAINER_END_S = 8, 15, 30
FLOOR_S = 2
"""Minimum grace period of a container, and its whole grace period if its object was deleted without one
(minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go).
"""


@needs(nodes=2, faulted=1, features=("real-pods",), duration_s="150")
def test_kubelet_of_deleted_node_ends_pods_once_they_are_removed(lab: Lab, claim: Expectations) -> None:
    """The collector deletes without grace: a container that ignores SIGTERM gets 2 s of its 8 s."""
    node, kills = lab.target, claim("deletion-gc.live-kubelet-kills")
    lab.run(actions.wait_podgc_quarantine(node))
    (pod,) = lab.run(actions.run_witnesses(Witness(grace_s=OWN_GRACE_S, ignores_sigterm=True), on=node))
    node_back = moments.first_after(node.created, after=node.removed)

    with lab.record(), lab.inject(faults.delete_node(node, lab.labels(node))):
        kills.expect(pod.removal, within=windows.quarantine(), after=node.removed)
        # The API shows nothing of a container any more.
        lab.wait_for(node_back.never_after(pod.removal, CONTAINER_END_S))
        lab.collect(pod)

    kills.expect_later(pod.sigterm, within=SOON_S, after=pod.removal)
    kills.expect_later(pod.last_sign, within=windows.grace_period(FLOOR_S), after=pod.sigterm)
