"""Settings of a kubelet's topology manager."""

from nodeproof.scenario import Expectations, Lab, actions, needs

NAME, POLICY, GATE = "without-gate", "single-numa-node", "TopologyManager"


@needs(nodes=2, duration_s="25")
def test_kubelet_accepts_topology_policy_but_not_topology_gate(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        lab.run(actions.join(NAME))
        without_gate = lab.run(actions.try_kubelet(NAME, topologyManagerPolicy=POLICY))
        claim("topology.gate").expect_value(without_gate, {"status": None})
        gates = {GATE: True}
        with_gate = lab.run(actions.try_kubelet(NAME, topologyManagerPolicy=POLICY, featureGates=gates))
        refusal = {"status": {"$not": None}, "output": {"$contains": f"unrecognized feature gate: {GATE}"}}
        claim("topology.gate").expect_value(with_gate, refusal)
