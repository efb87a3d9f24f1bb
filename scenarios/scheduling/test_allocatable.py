"""Node Allocatable: resources reserved for system daemons, and the requests that the scheduler counts."""

from collections.abc import Mapping

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, probes
from nodeproof.scenario.kubernetes import STATIC_PODS, mirror_pod
from nodeproof.scenario.types import Check, Expectation

RESTART_S, ATTEMPT_S, BINDING_S = 60.0, 5.0, 15.0
"""Longest time until a restarted kubelet reports, an attempt to schedule a pod, and its binding (s)."""
RESERVED = {
    "kubeReserved": {"cpu": "100m", "memory": "64Mi"},
    "systemReserved": {"cpu": "50m", "memory": "32Mi"},
    "evictionHard": {"memory.available": "96Mi"},
}
RESERVED_CPU_M, RESERVED_MEMORY_BYTES = 100 + 50, (64 + 32 + 96) << 20
DEFAULT_EVICTION_BYTES = 100 << 20
"""Default of memory.available in evictionHard (pkg/kubelet/eviction/defaults_linux.go)."""

STATIC_CPU = 300
"""CPU request of the static pod, in millicores."""
FOREIGN, TASK_RUNNING = "nodeproof-foreign", "RUNNING"
FOREIGN_WORK = f"""
nice sh -c 'while :; do :; done' &
exec ctr -n k8s.io run --rm nodeproof.local/pause:1 {FOREIGN}
"""
"""`ctr` forwards SIGTERM to the container, so both end when the unit is stopped."""


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="60")
def test_pods_get_no_more_than_allocatable_resources(lab: Lab, claim: Expectations) -> None:
    """One pod requests all that is allocatable, another one a thousandth of a CPU more."""
    node, formula_claim = lab.target, claim("capacity.allocatable-formula")
    reserved_claim = claim("scheduling.reserve-for-daemons")

    with lab.record():
        initial = lab.observe(probes.resources_of(node))
        capacity = initial.value["capacity"]
        formula_claim.expect_value(initial, resources_with_reserved(capacity, 0, DEFAULT_EVICTION_BYTES))
        remaining = capacity["cpu"] - RESERVED_CPU_M
        allocatable_report = node.became({"status": {"allocatable": {"cpu": f"{remaining}m"}}})
        with lab.inject(faults.kubelet_settings(node, **RESERVED)) as reserved:
            lab.wait_for_required(allocatable_report, within_s=RESTART_S, after=reserved.requested_at)
            expected = resources_with_reserved(capacity, RESERVED_CPU_M, RESERVED_MEMORY_BYTES)
            formula_claim.expect_value(lab.observe(probes.resources_of(node)), expected)
            expect_unbound(lab, reserved_claim, remaining + 1)
            expect_bound(lab, reserved_claim, remaining)


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="80")
def test_scheduler_counts_static_pods_but_not_foreign_processes(lab: Lab, claim: Expectations) -> None:
    """The scheduler counts a static pod, and ignores a container and a process outside of the kubelet."""
    node, static = lab.target, mirror_pod(lab.target)
    static_pod_settings = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)
    manifest = faults.static_pod(static, {"cpu": f"{STATIC_CPU}m"})
    static_pod_claim = claim("scheduling.counts-kubelet-containers")
    foreign_claim = claim("scheduling.ignores-foreign")

    with lab.record(), lab.inject(manifest), lab.inject(static_pod_settings) as restart:
        lab.wait_for_required(static.running, within_s=RESTART_S, after=restart.requested_at)
        remaining = lab.observe(probes.resources_of(node)).value["allocatable"]["cpu"] - STATIC_CPU
        with lab.inject(faults.unit_up(node, FOREIGN_WORK)):
            foreign_claim.expect_value(lab.observe(probes.task_of(node, FOREIGN)), TASK_RUNNING)
            expect_unbound(lab, static_pod_claim, remaining + 1)
            foreign_claim.expect_later(expect_bound(lab, static_pod_claim, remaining))
            foreign_claim.expect_value(lab.observe(probes.task_of(node, FOREIGN)), TASK_RUNNING)


def resources_with_reserved(
    capacity: Mapping[str, int], cpu_m: int, memory_bytes: int
) -> Mapping[str, object]:
    """Return the resources of a node of which `cpu_m` (millicores) and `memory_bytes` are reserved."""
    reserved = {"cpu": cpu_m, "memory": memory_bytes, "pods": 0}
    allocatable = {name: capacity[name] - amount for name, amount in reserved.items()}
    return {"capacity": capacity, "allocatable": allocatable}


def expect_unbound(lab: Lab, expectation: Expectation, cpu: int) -> None:
    """Create a pod that requests `cpu` (millicores), and expect that it is unschedulable and unbound."""
    pod = lab.run(actions.pending_pod(only_on=lab.target, requests={"cpu": f"{cpu}m"}))
    expectation.expect(pod.unschedulable, within=ATTEMPT_S, after=pod.created)
    expectation.never(pod.bound, throughout=lab.quiet_s, after=pod.created)


def expect_bound(lab: Lab, expectation: Expectation, cpu: int) -> Check:
    """Create a pod that requests `cpu` (millicores), and expect that it is bound within `BINDING_S`."""
    pod = lab.run(actions.pending_pod(only_on=lab.target, requests={"cpu": f"{cpu}m"}))
    return expectation.expect(pod.bound, within=BINDING_S, after=pod.created)
