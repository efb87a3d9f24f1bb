"""What keeps a kubelet from starting of what it is told about swap, and of the cgroups that it finds."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, join, needs, shows, try_kubelet

NAME, OF_CGROUP_V1 = "swapping", "of-cgroup-v1"
REFUSES_V1 = "configured to not run on a host using cgroup v1"


@claims("swap.config-validation", "swap.gate", "swap.unlimited")
@needs(nodes=2, lasts="25")
def test_a_kubelet_refuses_a_swap_behaviour_that_it_does_not_know(lab: Stage, judge: Judge) -> None:
    with lab.record():
        lab.do(join(NAME))
        known = lab.do(try_kubelet(NAME, memorySwap={"swapBehavior": "LimitedSwap"}))
        unknown = lab.do(try_kubelet(NAME, memorySwap={"swapBehavior": "UnlimitedSwap"}))
        gate_off = lab.do(
            try_kubelet(NAME, memorySwap={"swapBehavior": "LimitedSwap"}, featureGates={"NodeSwap": False})
        )

    runs = shows(known, {"status": None})
    refused = shows(unknown, {"status": 1, "said": {"$contains": "must be one of"}})
    # Since 1.34, where the gate is locked, it panics.
    ended = shows(gate_off, {"status": {"$not": None}, "said": {"$contains": "NodeSwap"}})
    for claim, checks in (
        ("swap.config-validation", (runs, refused, ended)),
        ("swap.gate", (runs, ended)),
        ("swap.unlimited", (runs, refused)),
    ):
        for check in checks:
            judge(claim, check)


@claims("swap.cgroup-v1-kubelet-refuses")
@needs(nodes=2, lasts="25")
def test_a_kubelet_does_not_start_on_cgroup_v1_unless_it_is_told_to(lab: Stage, judge: Judge) -> None:
    with lab.record():
        lab.do(join(OF_CGROUP_V1))
        by_default = lab.do(try_kubelet(OF_CGROUP_V1, on_cgroup_v1=True, failCgroupV1=None))
        told = lab.do(try_kubelet(OF_CGROUP_V1, on_cgroup_v1=True, failCgroupV1=False))

    judge(
        "swap.cgroup-v1-kubelet-refuses", shows(by_default, {"status": 1, "said": {"$contains": REFUSES_V1}})
    )
    # A real one ends all the same: no hierarchy of cgroup v1 is there for it.
    judge("swap.cgroup-v1-kubelet-refuses", shows(told, {"said": {"$not": {"$contains": REFUSES_V1}}}))
