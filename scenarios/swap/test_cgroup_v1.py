"""A kubelet on cgroup v1, where pods get no swap."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, needs
from nodeproof.scenario.types import Shape

NAME = "of-cgroup-v1"
LEGACY = ("systemd.unified_cgroup_hierarchy=0", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
"""Kernel arguments with which systemd up to 257 mounts the old hierarchies."""
REFUSES_SWAP = "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"


@needs(nodes=2, features=("shapes", "systemd"), duration_s="150")
def test_kubelet_refuses_limited_swap_on_cgroup_v1(lab: Lab, claim: Expectations) -> None:
    """Without swap, the kubelet may fail for other reasons, such as missing cgroup v1 controllers."""
    settings: Any = {"failCgroupV1": False, "failSwapOn": False}

    with lab.record():
        lab.run(actions.join(NAME, shape=Shape(kernel=LEGACY)))
        hierarchies = lab.run(actions.run_on(NAME, "stat", "--file-system", "--format=%T", "/sys/fs/cgroup"))
        no_swap = lab.run(actions.try_kubelet(NAME, **settings, memorySwap={"swapBehavior": "NoSwap"}))
        limited = lab.run(actions.try_kubelet(NAME, **settings, memorySwap={"swapBehavior": "LimitedSwap"}))

    is_v1 = hierarchies.value["stdout"].strip() == "tmpfs"
    lab.require_lab(
        is_v1, otherwise="the guest did not boot with cgroup v1", next_step="see the console of the machine"
    )
    unsupported = claim("swap.cgroup-v1-unsupported")
    unsupported.expect_value(no_swap, {"output": {"$not": {"$contains": REFUSES_SWAP}}})
    unsupported.expect_value(limited, {"status": 1, "output": {"$contains": REFUSES_SWAP}})
