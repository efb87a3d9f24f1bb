"""Heartbeats: the Lease of an idle node."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    audit,
    claims,
    counted,
    default_of,
    needs,
    recording_began,
    renewals_of,
    windows,
)

RENEWALS = 20


@claims("heartbeat.lease-interval", "heartbeat.kubelet-is-writer")
@needs(nodes=2, lasts="20R + 2")
def test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration(lab: Stage, judge: Judge) -> None:
    node = lab.target
    writes = {"verb": {"$in": ["create", "update", "patch", "delete"]}, "name": node}
    by_itself, by_others = f"system:node:{node}", {"$not": f"system:node:{node}"}
    renewed, meddled = (audit(**writes, resource="leases", user=user) for user in (by_itself, by_others))
    told = audit(**writes, resource="nodes", subresource="status", user=by_others)
    renewals = renewals_of(node, windows.renewals(), at_least=RENEWALS)
    with lab.record():
        lab.wait_for(renewals)
        lab.hear(renewed, meddled, told)
    judge("heartbeat.lease-interval", renewals)
    for source, low, high in ((renewed, RENEWALS - 1, 3 * RENEWALS // 2), (meddled, 0, 0), (told, 0, 0)):
        often = counted(source.request, low, high, after=recording_began(), until=source.heard)
        judge("heartbeat.kubelet-is-writer", often)


@claims("heartbeat.lease-interval")
@needs(nodes=2, profile="documented")
def test_lease_duration_of_a_kubelet_without_settings_is_forty_seconds(lab: Stage, judge: Judge) -> None:
    with lab.record():
        judge("heartbeat.lease-interval", default_of("nodeLeaseDurationSeconds"))
