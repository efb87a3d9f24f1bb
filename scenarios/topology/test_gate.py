"""Settings of a kubelet's topology manager."""

from nodeproof.scenario import Expectations, Lab, actions, needs

NAME, POLICY, GATE = "without-gate", "single-numa-node", "TopologyManager"


@needs(nodes=2, duration_s="25")
def test_kubelet_accepts_topology_policy_but_not_topology_gate(lab: Lab, claim: Expectations) -> None:
    message = f"unrecognized feature gate: {GATE}"
    with lab.record():
        lab.run(actions.join(NAME))
        without_gate = lab.run(actions.try_kubelet(NAME, topologyManagerPolicy=POLICY))
        claim("topology.gate").expect_value(without_gate, {"status": None})
        with_gate = lab.run(
            actions.try_kubelet(NAME, topologyManagerPolicy=POLICY, featureGates={GATE: True})
        )
        claim("topology.gate").expect_value(
            with_gate, {"status": {"$not": None}, "output": {"$contains": message}}
        )
