"""Resources of a machine that the scheduler leaves to other processes."""

from collections.abc import Mapping

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, mirror_pod
from nodeproof.scenario.types import Check, Expectation

UP_S, TRIED_S, BOUND_S = 60.0, 5.0, 15.0
RESERVED = {
    "kubeReserved": {"cpu": "100m", "memory": "64Mi"},
    "systemReserved": {"cpu": "50m", "memory": "32Mi"},
    "evictionHard": {"memory.available": "96Mi"},
}
CPU, MEMORY = 100 + 50, (64 + 32 + 96) << 20
BY_DEFAULT = 100 << 20
"""Default of memory.available (pkg/kubelet/eviction/defaults_linux.go)."""

STATIC_CPU = 300
"""CPU request of the static pod, in millicores."""
FOREIGN, TASK_RUNNING = "nodeproof-foreign", "RUNNING"
FOREIGN_WORK = f"""
nice sh -c 'while :; do :; done' &
exec ctr -n k8s.io run --rm nodeproof.local/pause:1 {FOREIGN}
"""
"""On SIGTERM, it ends in order with its container."""


@needs(nodes=2, faulted=1, features=("systemd",), lasts="60")
def test_pods_get_no_more_than_allocatable_resources(lab: Lab, claim: Expectations) -> None:
    """One pod requests all that is allocatable, another one a thousandth of a CPU more."""
    node, formula = lab.target, claim("capacity.allocatable-formula")
    reserve = claim("scheduling.reserve-for-daemons")

    with lab.record():
        default_resources = lab.observe(probes.resources_of(node))
        capacity = default_resources.value["capacity"]
        formula.expect_later(checks.shows(default_resources, all_but(capacity, 0, BY_DEFAULT)))
        remaining = capacity["cpu"] - CPU
        reported = node.became({"status": {"allocatable": {"cpu": f"{remaining}m"}}})
        with lab.inject(faults.kubelet_settings(node, **RESERVED)) as reserved:
            lab.wait_for(reported.after(reserved.requested_at, windows.prompt(UP_S)))
            lab.require(reported, within_s=UP_S, after=reserved.requested_at)
            formula.expect_later(
                checks.shows(lab.observe(probes.resources_of(node)), all_but(capacity, CPU, MEMORY))
            )
            expect_unbound(lab, reserve, remaining + 1)
            expect_bound(lab, reserve, remaining)


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="80")
def test_scheduler_counts_static_pods_but_not_foreign_processes(lab: Lab, claim: Expectations) -> None:
    """The scheduler counts a static pod, and ignores a container and a process outside of the kubelet."""
    node, static = lab.target, mirror_pod(lab.target)
    with_static_pods = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)
    manifest = faults.static_pod(static, {"cpu": f"{STATIC_CPU}m"})
    static_pods, foreign = claim("scheduling.counts-kubelet-containers"), claim("scheduling.ignores-foreign")

    with lab.record(), lab.inject(manifest), lab.inject(with_static_pods) as restart:
        lab.wait_for(static.running.after(restart.requested_at, windows.prompt(UP_S)))
        lab.require(static.running, within_s=UP_S, after=restart.requested_at)
        remaining = lab.observe(probes.resources_of(node)).value["allocatable"]["cpu"] - STATIC_CPU
        with lab.inject(faults.unit_up(node, FOREIGN_WORK)):
            foreign.expect_later(checks.shows(lab.observe(probes.task_of(node, FOREIGN)), TASK_RUNNING))
            expect_unbound(lab, static_pods, remaining + 1)
            foreign.expect_later(expect_bound(lab, static_pods, remaining))
            foreign.expect_later(checks.shows(lab.observe(probes.task_of(node, FOREIGN)), TASK_RUNNING))


def all_but(capacity: Mapping[str, int], cpu: int, memory: int) -> Mapping[str, object]:
    """Return the resources of a node of which `cpu` (millicores) and `memory` (bytes) are reserved."""
    reserved = {"cpu": cpu, "memory": memory, "pods": 0}
    allocatable = {name: capacity[name] - amount for name, amount in reserved.items()}
    return {"capacity": capacity, "allocatable": allocatable}


def expect_unbound(lab: Lab, expectation: Expectation, cpu: int) -> None:
    """Create a pod that requests `cpu` (millicores), and expect that it is tried and stays unbound."""
    pod = lab.run(actions.pending_pod(only_on=lab.target, requests={"cpu": f"{cpu}m"}))
    expectation.expect(pod.unschedulable, within=windows.prompt(TRIED_S), after=pod.created)
    expectation.never(pod.bound, throughout=windows.absence(lab.quiet_s), after=pod.created)


def expect_bound(lab: Lab, expectation: Expectation, cpu: int) -> Check:
    """Create a pod that requests `cpu` (millicores), and expect that it is bound soon."""
    pod = lab.run(actions.pending_pod(only_on=lab.target, requests={"cpu": f"{cpu}m"}))
    return expectation.expect(pod.bound, within=windows.prompt(BOUND_S), after=pod.created)
