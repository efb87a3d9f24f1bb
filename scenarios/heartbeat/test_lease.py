"""Heartbeats: the Lease of an idle node."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, default_of, needs, renewals_of, windows

RENEWALS = 20


@claims("heartbeat.lease-interval")
@needs(nodes=2)
def test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration(lab: Stage, judge: Judge) -> None:
    renewals = renewals_of(lab.target, windows.renewals(), at_least=RENEWALS)
    with lab.record():
        lab.wait_for(renewals)
    judge("heartbeat.lease-interval", renewals)


@claims("heartbeat.lease-interval")
@needs(nodes=2, profile="documented")
def test_lease_duration_of_a_kubelet_without_settings_is_forty_seconds(lab: Stage, judge: Judge) -> None:
    with lab.record():
        judge("heartbeat.lease-interval", default_of("nodeLeaseDurationSeconds"))
