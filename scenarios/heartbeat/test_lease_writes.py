"""A Lease of a lost node that somebody else writes to."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ANNOTATED = {"metadata": {"annotations": {"nodeproof.dev/seen": "true"}}}


@needs(nodes=2, faulted=1, duration_s="4G")
def test_annotation_of_a_lease_is_no_heartbeat(lab: Lab, claim: Expectations) -> None:
    """Half of a grace period after the last heartbeat, which is the delay if it counts as one."""
    node = lab.target

    with lab.record(), lab.inject(faults.partition(node)) as fault:
        absence = windows.absence(lab.configuration["G"] / 2)
        lab.wait_for(node.unknown.never_after(fault.injected_at, absence))
        lab.run(actions.send_request("PATCH", f"{LEASES}/{node}", ANNOTATED))
        annotated, detection = claim("heartbeat.annotated-lease"), windows.detection_from_fault()
        annotated.expect(node.unknown, within=detection, after=fault.injected_at)
