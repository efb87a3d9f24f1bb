"""Swap settings and a cgroup version with which a kubelet does not start."""

from nodeproof.scenario import Expectations, Lab, actions, checks, needs

NODE, CGROUP_V1_NODE = "swapping", "of-cgroup-v1"
REFUSES_V1 = "configured to not run on a host using cgroup v1"
LIMITED, UNLIMITED = {"swapBehavior": "LimitedSwap"}, {"swapBehavior": "UnlimitedSwap"}


@needs(nodes=2, duration_s="25")
def test_kubelet_rejects_unknown_swap_behavior(lab: Lab, claim: Expectations) -> None:
    validation, gate = claim("swap.config-validation"), claim("swap.gate")
    unlimited = claim("swap.unlimited")

    with lab.record():
        lab.run(actions.join(NODE))
        limited = lab.run(actions.try_kubelet(NODE, memorySwap=LIMITED))
        for expectation in (validation, gate, unlimited):
            expectation.expect_value(limited, {"status": None})
        refusal = lab.run(actions.try_kubelet(NODE, memorySwap=UNLIMITED))
        for expectation in (validation, unlimited):
            expectation.expect_value(refusal, {"status": 1, "output": {"$contains": "must be one of"}})
        gate_off = lab.run(actions.try_kubelet(NODE, memorySwap=LIMITED, featureGates={"NodeSwap": False}))
        # Since 1.34, where the gate is locked, the kubelet panics.
        exits = checks.shows(gate_off, {"status": {"$not": None}, "output": {"$contains": "NodeSwap"}})
        for expectation in (validation, gate):
            expectation.expect_later(exits)


@needs(nodes=2, duration_s="25")
def test_kubelet_refuses_cgroup_v1_unless_settings_allow_it(lab: Lab, claim: Expectations) -> None:
    refuses = claim("swap.cgroup-v1-kubelet-refuses")

    with lab.record():
        lab.run(actions.join(CGROUP_V1_NODE))
        by_default = lab.run(actions.try_kubelet(CGROUP_V1_NODE, on_cgroup_v1=True, failCgroupV1=None))
        refuses.expect_value(by_default, {"status": 1, "output": {"$contains": REFUSES_V1}})
        allowed = lab.run(actions.try_kubelet(CGROUP_V1_NODE, on_cgroup_v1=True, failCgroupV1=False))
        # A real kubelet exits all the same, because the machine has no hierarchy of cgroup v1.
        refuses.expect_value(allowed, {"output": {"$not": {"$contains": REFUSES_V1}}})
