"""A hand-made Node that is deleted and added again under its name."""

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, windows
from nodeproof.scenario.kubernetes import Node, unique

STARTUP_GRACE = windows.formula("period", "S", "S - 1 - slack", "S + P + 1 + slack")
"""The grace period counts from creationTimestamp, which has no fraction of a second."""


@needs(nodes=2, duration_s="2S + 15")
def test_node_added_again_has_a_startup_grace_period_of_its_own(lab: Lab, claim: Expectations) -> None:
    node = Node(unique("by-hand"))
    body = {"metadata": {"name": node}}
    added_again = moments.first_after(node.created, after=node.removed)
    unknown_again = moments.first_after(node.unknown, after=added_again)

    with lab.record():
        lab.run(actions.send_request("POST", "/api/v1/nodes", body))
        lab.wait_for(node.unknown.after(node.created, STARTUP_GRACE))
        lab.run(actions.kubectl("delete", "node", node))
        lab.run(actions.send_request("POST", "/api/v1/nodes", body))
        claim("manual-node.added-again").expect(unknown_again, within=STARTUP_GRACE, after=added_again)
