"""Heartbeats of one kind where those of the other are refused."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    audit,
    claims,
    condition_became,
    counted,
    needs,
    refused,
    renewals_of,
    windows,
)

WRONG = {"status": {"nodeInfo": {"kernelVersion": "nodeproof"}}}
"""What a kubelet puts right: an idle one reports nothing for minutes."""


@claims("heartbeat.lease-independent")
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
    judge("heartbeat.lease-independent", lives)
    judge("heartbeat.lease-independent", renewals)
