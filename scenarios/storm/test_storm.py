"""Random faults for some minutes; what must hold whatever they are."""

from nodeproof.model.schedule import Schedule
from nodeproof.scenario import Expectations, Lab, checks, faults, needs, storm, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, mirror_pod


@needs(
    nodes=6,
    faulted=4,
    radius="zone",
    components=("kube-controller-manager", "kube-scheduler"),
    duration_s="G + 300",
)
def test_invariants_hold_in_a_storm(lab: Lab, claim: Expectations, schedule: Schedule) -> None:
    workloads, static = storm.new_workloads(lab), mirror_pod(lab.target)
    with_static_pods = faults.kubelet_settings(lab.target, staticPodPath=STATIC_PODS)

    with (
        lab.record(extra_resources=("endpointslices",)),
        lab.inject(faults.static_pod(static)),
        lab.inject(with_static_pods),
    ):
        workloads.make(lab)
        last_fault = storm.run(lab, schedule, workloads)
        in_time = windows.up_to(f"G + {lab.toleration_s} + 60")
        claim("storm.recovers").expect(checks.settled(in_time, after=last_fault.healed_at))
        claim("storm.replicas-recover").expect(
            checks.replicas_available(
                in_time, after=last_fault.healed_at, replicas=workloads.replicas(len(lab.nodes()))
            )
        )
        claim("storm.known-while-heard").expect_later(checks.known_while_heard())
        claim("storm.evicted-when-due").expect_later(checks.evicted_when_due())
        claim("storm.bound-to-open-nodes").expect_later(checks.bound_to_open_nodes())
        claim("storm.taints-follow-ready").expect_later(checks.taints_follow_ready())
        claim("storm.evicted-in-time").expect_later(checks.evicted_in_time())
        claim("storm.removed-by-kubelet").expect_later(checks.removed_by_kubelet())
        claim("storm.endpoints-follow-pods").expect_later(checks.endpoints_follow_pods())
        claim("storm.taint-rate-kept").expect_later(checks.taint_rate_kept())
        claim("storm.exempt-pods-stay").expect_later(checks.exempt_pods_stay())
        claim("storm.lifecycle-advances").expect_later(checks.lifecycle_advances())
        claim("storm.budget-kept").expect_later(
            checks.budget_kept(workloads.stateful_set.name, storm.MIN_AVAILABLE)
        )
