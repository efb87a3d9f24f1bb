"""What a kubelet is told to have its topology manager."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, join, needs, shows, try_kubelet

NAME, POLICY, GATE = "without-gate", "single-numa-node", "TopologyManager"


@claims("topology.gate")
@needs(nodes=2, lasts="25")
def test_a_kubelet_aligns_without_a_gate_and_knows_none_for_it(lab: Stage, judge: Judge) -> None:
    with lab.record():
        lab.do(join(NAME))
        aligns = lab.do(try_kubelet(NAME, topologyManagerPolicy=POLICY))
        gated = lab.do(try_kubelet(NAME, topologyManagerPolicy=POLICY, featureGates={GATE: True}))

    judge("topology.gate", shows(aligns, {"status": None}))
    unknown = f"unrecognized feature gate: {GATE}"
    judge("topology.gate", shows(gated, {"status": {"$not": None}, "said": {"$contains": unknown}}))
