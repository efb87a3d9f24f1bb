"""Leader election of the components of three control planes, by a Lease in kube-system.

A candidate tries to lead every Y to 2.2Y (JitterFactor of k8s.io/client-go/tools/leaderelection). It waits
for the lease duration L from when it saw the last renewal.
"""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import unique, workload
from nodeproof.scenario.sources import Log
from nodeproof.scenario.types import Moment

MANAGER, LEASES, NAMESPACE = "kube-controller-manager", "component-leases", "kube-system"
PLANES = ("control-plane-1", "control-plane-2", "control-plane-3")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{MANAGER}"
STOPPED = "leaderelection lost"
IDLE = windows.absence_including_anchor(3.0)


def other_holder(leader: str) -> Moment:
    pattern = {"spec": {"holderIdentity": {"$not": {"$prefix": f"{leader}_"}}}}
    return moments.became(LEASES, MANAGER, pattern, NAMESPACE)


@needs(nodes=2, components=(MANAGER,), control_planes=3, duration_s="2L + 20")
def test_another_replica_leads_after_the_leader_dies(lab: Lab, claim: Expectations) -> None:
    with lab.record(extra_resources=[LEASES]):
        leader = str(lab.observe(probes.leader(MANAGER)).value)
        with lab.inject(faults.power_off(leader.replace("control-plane", MANAGER))) as fault:
            claim("leader-election.takeover").expect(other_holder(leader), after=fault.injected_at)


@needs(nodes=2, components=(MANAGER,), control_planes=3, duration_s="4L + 20")
def test_leader_stays_while_a_candidate_dies_and_returns(lab: Lab, claim: Expectations) -> None:
    """A client annotates the Lease before, so the leader's next renewal has an outdated version of it."""
    one_holder = claim("leader-election.one-holder")
    edit = {"metadata": {"annotations": {"nodeproof.dev/edit": unique("edit")}}}
    with lab.record(extra_resources=[LEASES]):
        leader = str(lab.observe(probes.leader(MANAGER)).value)
        candidate = next(plane for plane in PLANES if plane != leader)
        lab.run(actions.send_request("PATCH", LEASE, edit))
        with lab.inject(faults.power_off(candidate.replace("control-plane", MANAGER))) as fault:
            one_holder.never(other_holder(leader), throughout="2L", after=fault.injected_at)
        one_holder.never(other_holder(leader), throughout="2L", after=fault.healed_at)


@needs(nodes=2, components=(MANAGER,), control_planes=3, duration_s="D + L + 30")
def test_leader_stops_when_it_cannot_renew(lab: Lab, claim: Expectations) -> None:
    """It makes no pods after that: no other replica leads, either."""
    log, load = Log(MANAGER, STOPPED), workload("Deployment")
    stops = claim("leader-election.stops-at-renew-deadline")
    with lab.record(extra_resources=[LEASES]):
        with lab.inject(faults.deny_election(MANAGER)) as fault:
            stops.expect_later(log.line, after=fault.injected_at)
            lab.wait_for(lab.target.unknown.never_after(fault.injected_at, "D + 2Y + 3"))
            lab.run(load.make)
            stops.never(load.pod_written(), throughout=IDLE, after=load.make.begun)
        lab.collect(log)
