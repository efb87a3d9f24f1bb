"""Heartbeats: the Lease of an idle node."""

from nodeproof.scenario import Expectations, Lab, checks, moments, needs, windows
from nodeproof.scenario.sources import audit

RENEWALS = 20


@needs(nodes=2, duration_s="20R + 2")
def test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration(lab: Lab, claim: Expectations) -> None:
    node, user = lab.target, f"system:node:{lab.target}"
    writes = {"verb": {"$in": ["create", "update", "patch", "delete"]}, "name": node}
    own_leases = audit(**writes, resource="leases", user=user)
    others_leases = audit(**writes, resource="leases", user={"$not": user})
    others_status = audit(**writes, resource="nodes", subresource="status", user={"$not": user})
    with lab.record():
        renewals = checks.renewals_of(node, windows.renewals(), at_least=RENEWALS)
        claim("heartbeat.lease-interval").expect(renewals)
        lab.collect(own_leases, others_leases, others_status)
    for source, low, high in (
        (own_leases, RENEWALS - 1, 3 * RENEWALS // 2),
        (others_leases, 0, 0),
        (others_status, 0, 0),
    ):
        span = {"after": moments.recording_began(), "until": source.collected}
        requests = checks.counted(source.request, low, high, **span)
        claim("heartbeat.kubelet-is-writer").expect_later(requests)


@needs(nodes=2, profile="documented")
def test_kubelet_lease_duration_is_40_s_by_default(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        claim("heartbeat.lease-interval").expect_later(checks.default_of("nodeLeaseDurationSeconds"))
