"""What keeps a kubelet from starting of what it is told about swap."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, join, needs, shows, try_kubelet

NAME = "swapping"


@claims("swap.config-validation")
@needs(nodes=2, lasts="25")
def test_a_kubelet_refuses_a_swap_behaviour_that_it_does_not_know(lab: Stage, judge: Judge) -> None:
    with lab.record():
        lab.do(join(NAME))
        known = lab.do(try_kubelet(NAME, memorySwap={"swapBehavior": "LimitedSwap"}))
        unknown = lab.do(try_kubelet(NAME, memorySwap={"swapBehavior": "UnlimitedSwap"}))
        gate_off = lab.do(
            try_kubelet(NAME, memorySwap={"swapBehavior": "LimitedSwap"}, featureGates={"NodeSwap": False})
        )

    judge("swap.config-validation", shows(known, {"status": None}))
    judge("swap.config-validation", shows(unknown, {"status": 1, "said": {"$contains": "must be one of"}}))
    # Since 1.34, where the gate is locked, it panics.
    ended = {"status": {"$not": None}, "said": {"$contains": "NodeSwap"}}
    judge("swap.config-validation", shows(gate_off, ended))
