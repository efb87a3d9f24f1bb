"""A machine of cgroup v1: its kubelet shares no swap out."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import Shape, Stage, claims, join, needs, run_on, shows, try_kubelet

NAME = "of-cgroup-v1"
LEGACY = ("systemd.unified_cgroup_hierarchy=0", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
"""What systemd up to 257 mounts the old hierarchies for."""
REFUSES_SWAP = "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"


@claims("swap.cgroup-v1-unsupported")
@needs(nodes=2, features=("shapes", "systemd"), lasts="150")
def test_a_kubelet_shares_no_swap_out_on_a_machine_of_cgroup_v1(lab: Stage, judge: Judge) -> None:
    """Whether it runs there without is left open, as the kernel may lack controllers of cgroup v1: it does
    not end for swap.
    """
    bears: Any = {"failCgroupV1": False, "failSwapOn": False}

    with lab.record():
        lab.do(join(NAME, shape=Shape(kernel=LEGACY)))
        hierarchies = lab.do(run_on(NAME, "stat", "--file-system", "--format=%T", "/sys/fs/cgroup"))
        none = lab.do(try_kubelet(NAME, **bears, memorySwap={"swapBehavior": "NoSwap"}))
        limited = lab.do(try_kubelet(NAME, **bears, memorySwap={"swapBehavior": "LimitedSwap"}))

    is_v1 = hierarchies.value["stdout"].strip() == "tmpfs"
    lab.expect(is_v1, "one whose guests may have cgroup v1", "see the console of its machine")
    judge("swap.cgroup-v1-unsupported", shows(none, {"said": {"$not": {"$contains": REFUSES_SWAP}}}))
    refusal = {"status": 1, "said": {"$contains": REFUSES_SWAP}}
    judge("swap.cgroup-v1-unsupported", shows(limited, refusal))
