"""Registration of a kubelet whose Node was deleted."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs

UP_S = 30.0
LONG = "max(3U, U + 10)"
"""A kubelet notices within U, and its longest wait before another registration is 7 s
(pkg/kubelet/kubelet_node_status.go: registerWithAPIServer).
"""


@needs(nodes=2, faulted=1, duration_s=f"{LONG} + 25")
def test_kubelet_recreates_its_deleted_node_only_at_start(lab: Lab, claim: Expectations) -> None:
    node, at_start = lab.target, claim("registration.no-reregister-after-delete")
    deletion, creation = node.removed, node.created
    creation_again = moments.first_after(creation, after=deletion)

    with lab.record():
        with lab.inject(faults.delete_node(node, lab.labels(node))) as fault:
            at_start.never(creation_again, throughout=LONG, after=deletion)
        at_start.expect_later(fault.lasted)
        with lab.inject(faults.unit_down(node)) as fault:
            lab.run(actions.kubectl("delete", "node", node))
            gone = moments.first_after(deletion, after=fault.injected_at)
            lab.wait_for(gone.after(fault.injected_at, UP_S))
        back = moments.first_after(creation, after=fault.healing_at)
        at_start.expect(back, within=UP_S, after=fault.healing_at)
