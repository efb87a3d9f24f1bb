"""Heartbeats of one kind while those of the other kind are refused."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, windows
from nodeproof.scenario.sources import audit

RETRIES = 5
"""Tries of each kind (nodeStatusUpdateRetry in pkg/kubelet/kubelet.go, maxUpdateRetries in
k8s.io/component-helpers/apimachinery/lease/controller.go); then none for a period, at most 4 % longer.
"""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BURSTS = 4
BURST_S = 2.0
"""Longest time for all tries (s), also of an emulated kubelet; one that waits before each takes longer."""
REPORTS_S = 5
"""Period of the reports of a kubelet without changes (s): shorter than the shortest grace period."""


@needs(nodes=2, faulted=1)
def test_node_stays_ready_by_lease_if_status_updates_are_denied(lab: Lab, claim: Expectations) -> None:
    node, independent = lab.target, claim("heartbeat.lease-independent")
    user = f"system:node:{node}"
    tries = audit(verb="patch", resource="nodes", subresource="status", name=node, user=user)
    refusals = audit(**tries.pattern, code={"$not": 200})
    # A value that a kubelet corrects: without a change, it reports nothing for minutes.
    wrong = {"status": {"nodeInfo": {"kernelVersion": "nodeproof"}}}
    patch = actions.send_request("PATCH", f"/api/v1/nodes/{node}/status", wrong)
    retry_period = windows.formula("period", "U", "U - slack", "1.04U + 0.5 + slack")

    with lab.record():
        independent.expect_later(checks.renewals_of(node, windows.renewals(), at_least=5))
        with lab.inject(faults.deny_updates(node, "status")) as fault:
            lab.run(patch)
            independent.never(node.unknown, throughout=2 * lab.configuration["G"], after=patch.ended)
        lab.collect(tries, refusals)

    span = {"after": patch.ended, "until": fault.healing_at}
    for source in (tries, refusals):
        independent.expect_later(checks.counted(source.request, 3, 9999, **span))
    burst = (tries.request, RETRIES)
    bursts = checks.in_bursts(
        burst, apart=retry_period, at_least=BURSTS, after=patch.ended, until=fault.healing_at
    )
    claim("heartbeat.status-retries").expect_later(bursts)


@needs(nodes=2, faulted=1, duration_s="2G + 15")
def test_node_stays_ready_by_status_if_lease_updates_are_denied(lab: Lab, claim: Expectations) -> None:
    """Each time that its Lease is due, the kubelet tries five times, reads the Lease, and tries five more."""
    status_alone_suffices = claim("heartbeat.status-alone-suffices")
    node, user = lab.target, f"system:node:{lab.target}"
    tries = audit(verb="update", resource="leases", code={"$not": 200}, name=node, user=user)
    reads = audit(verb="get", resource="leases", name=node, user=user)
    frequent_reports = faults.kubelet_settings(node, nodeStatusReportFrequency=f"{REPORTS_S}s")
    two_periods_s = 2 * lab.configuration["G"]
    retry_period = windows.formula("period", "R", "R - slack", "1.04R + 0.5 + slack")

    with lab.record():
        with lab.inject(frequent_reports) as restart:
            # The first tries of a kubelet after its start begin with the read.
            first = moments.first_after(node.lease_renewal, after=restart.injected_at)
            lab.wait_for(first.after(restart.injected_at, 60.0))
            with lab.inject(faults.deny_updates(node, "lease")) as fault:
                # The fault is injected at the start of the denied request: an earlier renewal may come later.
                lab.wait_until_quiet(node.lease_renewal)
                lease = lab.run(actions.send_request("GET", f"{LEASES}/{node}"))
                status_alone_suffices.expect_later(node.unknown.never_after(fault.injected_at, two_periods_s))
                status_alone_suffices.never(
                    node.lease_renewal, throughout=two_periods_s, after=lease.completed
                )
        lab.collect(tries, reads)

    burst, read = (tries.request, RETRIES), (reads.request, 1)
    bursts = checks.in_bursts(
        burst, read, burst, apart=retry_period, at_least=BURSTS, **fault.span, lasting_s=BURST_S
    )
    claim("heartbeat.lease-immediate-retries").expect_later(bursts)
