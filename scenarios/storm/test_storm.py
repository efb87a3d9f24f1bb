"""Random faults for some minutes; what must hold whatever they are."""

from nodeproof.model.schedule import Schedule
from nodeproof.scenario import Expectations, Lab, checks, needs, storm, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, tolerates, workload


@needs(
    nodes=6,
    faulted=4,
    radius="zone",
    components=("kube-controller-manager", "kube-scheduler"),
    duration_s="G + 300",
)
def test_invariants_hold_in_a_storm(lab: Lab, claim: Expectations, schedule: Schedule) -> None:
    deployment = workload("Deployment", replicas=4, tolerations=[tolerates(UNREACHABLE, lab.toleration_s)])
    daemons = workload("DaemonSet")

    with lab.record():
        for controller in (deployment, daemons):
            lab.run(controller.make)
        last_fault = storm.run(lab, schedule)
        claim("storm.recovers").expect(
            checks.settled(windows.up_to(f"G + {lab.toleration_s} + 60"), after=last_fault.healed_at)
        )
        claim("storm.known-while-heard").expect_later(checks.known_while_heard())
        claim("storm.evicted-when-due").expect_later(checks.evicted_when_due())
        claim("storm.bound-to-open-nodes").expect_later(checks.bound_to_open_nodes())
