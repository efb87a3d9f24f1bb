"""Registration of a kubelet whose Node was deleted."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows

UP = windows.up_to(30.0)
LONG = "max(3U, U + 10)"
"""A kubelet notices within U, and its longest wait before another registration is 7 s
(pkg/kubelet/kubelet_node_status.go: registerWithAPIServer).
"""


@needs(nodes=2, faulted=1, duration_s=f"{LONG} + 25")
def test_kubelet_recreates_its_deleted_node_only_at_start(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    deletion, creation = node.removed, node.created

    with lab.record():
        with lab.inject(faults.delete_node(node, lab.labels(node))) as fault:
            claim("registration.no-reregister-after-delete").never(
                moments.first_after(creation, after=deletion), throughout=LONG, after=deletion
            )
        claim("registration.no-reregister-after-delete").expect_later(fault.lasted)
        with lab.inject(faults.unit_down(node)) as fault:
            lab.run(actions.kubectl("delete", "node", node))
            lab.wait_for(moments.first_after(deletion, after=fault.injected_at).after(fault.injected_at, UP))
        claim("registration.no-reregister-after-delete").expect(
            moments.first_after(creation, after=fault.healing_at), within=UP, after=fault.healing_at
        )
