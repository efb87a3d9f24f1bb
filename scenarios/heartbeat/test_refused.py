"""Heartbeats of one kind where those of the other are refused."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    audit,
    changed,
    claims,
    condition_became,
    counted,
    in_bursts,
    kubelet_settings,
    needs,
    next_of,
    refused,
    renewals_of,
    windows,
)

WRONG = {"status": {"nodeInfo": {"kernelVersion": "nodeproof"}}}
"""What a kubelet puts right: an idle one reports nothing for minutes."""
RETRIES = 5
"""Of each (nodeStatusUpdateRetry in pkg/kubelet/kubelet.go, maxUpdateRetries in
k8s.io/component-helpers/apimachinery/lease/controller.go); then none for a period, 4 % longer at the most.
"""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BURSTS, STARTS_S = 4, 60.0
REPORTS_S = 5
"""How often a kubelet reports that has nothing new to say: more often than the shortest grace period."""


@claims("heartbeat.lease-independent", "heartbeat.status-retries")
@needs(nodes=2, faulted=1)
def test_a_node_lives_by_its_lease_when_its_status_is_refused(lab: Stage, judge: Judge) -> None:
    node = lab.target
    status = f"/api/v1/nodes/{node}/status"
    tried = audit(verb="patch", resource="nodes", subresource="status", name=node, user=f"system:node:{node}")
    denied = audit(**tried.pattern, code={"$not": 200})
    renewals = renewals_of(node, windows.renewals(), at_least=5)
    wrong = ask("PATCH", status, WRONG)

    with lab.record():
        with lab.inject(refused(node, "status")) as cut:
            lab.do(wrong)
            long = windows.absence(2 * lab.configuration["G"])
            lives = lab.wait_for(condition_became(node, "Ready", "Unknown").never_after(wrong.ended, long))
        lab.hear(tried, denied)

    for source in (tried, denied):
        many = counted(source.request, 3, 9999, after=wrong.ended, until=cut.healing)
        judge("heartbeat.lease-independent", many)
    a_period = windows.formula("period", "U", "U - slack", "1.04U + 0.5 + slack")
    five = (tried.request, RETRIES)
    judge(
        "heartbeat.status-retries",
        in_bursts(five, apart=a_period, at_least=BURSTS, after=wrong.ended, until=cut.healing),
    )
    judge("heartbeat.lease-independent", lives)
    judge("heartbeat.lease-independent", renewals)


@claims("heartbeat.status-alone-suffices", "heartbeat.lease-immediate-retries")
@needs(nodes=2, faulted=1, lasts="2G + 15")
def test_a_node_lives_by_its_status_when_its_lease_is_refused(lab: Stage, judge: Judge) -> None:
    """Each time that its Lease is due: five tries, a look whether it is there, and five more."""
    node, known = lab.target, lab.configuration
    itself = {"name": node, "user": f"system:node:{node}"}
    tried = audit(verb="update", resource="leases", code={"$not": 200}, **itself)
    looked = audit(verb="get", resource="leases", **itself)
    often = kubelet_settings(node, nodeStatusReportFrequency=f"{REPORTS_S}s")
    lost = condition_became(node, "Ready", "Unknown")
    renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")

    with lab.record():
        with lab.inject(often) as restart:
            # What a kubelet tries first after its start begins with the look.
            first = next_of(renewed, after=restart.began)
            lab.wait_for(first.after(restart.began, windows.prompt(STARTS_S)))
            with lab.inject(refused(node, "lease")) as cut:
                # A renewal just before the refusal would be within the slack of the look.
                lab.wait_for(renewed.never_after(cut.began, windows.absence(lab.clear_s)))
                acts = lab.do(ask("GET", f"{LEASES}/{node}"))
                long = windows.absence(2 * known["G"])
                lives = lost.never_after(cut.began, long)
                lab.wait_for(renewed.never_after(acts.came, windows.absence(2 * known["G"] + lab.clear_s)))
        lab.hear(tried, looked)

    a_renewal = windows.formula("period", "R", "R - slack", "1.04R + 0.5 + slack")
    five, once = (tried.request, RETRIES), (looked.request, 1)
    judge(
        "heartbeat.lease-immediate-retries",
        in_bursts(five, once, five, apart=a_renewal, at_least=BURSTS, after=cut.began, until=cut.healing),
    )
    for check in (lives, renewed.never_after(acts.came, long)):
        judge("heartbeat.status-alone-suffices", check)
