"""A hand-made Node that is deleted and added again under its name."""

import uuid

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, windows
from nodeproof.scenario.kubernetes import Node

NODES = "/api/v1/nodes"
STARTUP_GRACE = windows.formula("period", "S", "S - 1 - slack", "S + P + 1 + slack")
"""The grace period counts from creationTimestamp, which has no fraction of a second."""


@needs(nodes=2, duration_s="2S + 15")
def test_node_added_again_has_a_startup_grace_period_of_its_own(lab: Lab, claim: Expectations) -> None:
    node = Node(f"by-hand-{uuid.uuid4().hex[:8]}")
    body = {"metadata": {"name": node}}
    added_again = moments.first_after(node.created, after=node.removed)

    with lab.record():
        lab.run(actions.send_request("POST", NODES, body))
        lab.wait_for(node.unknown.after(node.created, STARTUP_GRACE))
        lab.run(actions.kubectl("delete", "node", node))
        lab.run(actions.send_request("POST", NODES, body))
        claim("manual-node.added-again").expect(
            moments.first_after(node.unknown, after=added_again), within=STARTUP_GRACE, after=added_again
        )
