"""Heartbeats: the status of a node about which there is nothing new to say."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Moment,
    Stage,
    amounts_to,
    audit,
    changed,
    claims,
    condition_became,
    counted,
    default_of,
    join,
    label_node,
    made,
    needs,
    outweighs,
    recording_began,
    removed,
    spaced,
    times_as_large,
    windows,
)

UP_S, LEASES, SLOWER_S, LEASED_S = 60.0, "kube-node-lease", 5, 4
LEASE_OF = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REPORTS, RENEWALS, UNSET = 1, 5, "0s"
LOOK_S = 1
"""The next look is counted from the end of the one before, which a busy machine draws out."""
AGAIN_S = 0.7
"""What TCP takes to send twice more what was lost on its way (200 ms, 400 ms): one renewal of many may be.
How precise a kubelet is, `heartbeat.lease-interval` judges.
"""
TIMES = 4
"""A Lease is at least so many times smaller than its Node."""


def reports(node: str) -> Moment:
    return changed("nodes", node, "status.conditions[].lastHeartbeatTime")


@claims(
    "heartbeat.two-forms",
    "heartbeat.status-report-interval",
    "heartbeat.status-longer-than-grace",
    "heartbeat.lease-lightweight",
    "heartbeat.lease-reduces-load",
    "heartbeat.request-timeout",
    "registration.status-update-frequency",
)
@needs(nodes=2, lasts="5G + 15")
def test_a_kubelet_with_nothing_new_to_say_renews_its_lease_and_seldom_reports_its_status(
    lab: Stage, judge: Judge
) -> None:
    """One reports once in two grace periods; one knows only how often it looks at its status,
    longer than its Lease lasts; one reports as often as it renews its Lease. The interval that is begun by a
    change is drawn by lot: it is not judged.
    """
    quiet, frequent, chatty, known = "quiet", "frequent", "chatty", lab.configuration
    interval_s, update_s = int(2 * known["G"]), int(known["U"])
    seldom, often = reports(quiet), reports(frequent)
    settled, ended = label_node(quiet, "settled", "yes"), label_node(quiet, "ended", "yes")
    timed = {quiet: min(update_s, int(4 * known["R"])), frequent: LEASED_S}
    heard = {
        node: audit(
            user=f"system:node:{node}",
            verb={"$in": ["update", "patch"]},
            resource={"$in": ["nodes", "leases"]},
            uri={"$contains": f"timeout={seconds}s"},
        )
        for node, seconds in timed.items()
    }
    others = {
        node: audit(**{**source.pattern, "uri": {"$not": source.pattern["uri"]}})
        for node, source in heard.items()
    }

    with lab.record():
        lab.do(join(quiet, nodeStatusReportFrequency=f"{interval_s}s"))
        lab.do(
            join(
                frequent,
                nodeLeaseDurationSeconds=LEASED_S,
                nodeStatusUpdateFrequency=f"{SLOWER_S}s",
                nodeStatusReportFrequency=UNSET,
            )
        )
        rate = f"{known['R']:g}s"
        at_one_rate: Any = {"nodeStatusUpdateFrequency": rate, "nodeStatusReportFrequency": UNSET}
        lab.do(join(chatty, **at_one_rate))
        for node in (chatty, frequent, quiet):
            ready = condition_became(node, "Ready", "True")
            lab.wait_for(ready.after(made("nodes", node), windows.prompt(UP_S)))
        lab.wait_for(removed("nodes", quiet).never_after(ready, windows.absence(2 * known["U"])))
        lab.do(settled)
        span = {"after": settled.ended, "until": ended.begun}
        rarely = windows.formula(
            "period", f"{interval_s}", f"{interval_s} - slack", f"{interval_s} + 1.04 * {update_s} + slack"
        )
        told = spaced(seldom, rarely, at_least=REPORTS, **span)
        lab.wait_for(told)
        alive = condition_became(quiet, "Ready", "Unknown").never_after(
            settled.ended, windows.absence(2 * interval_s)
        )
        lab.wait_for(alive)
        ratio = lab.look(times_as_large(f"/api/v1/nodes/{quiet}", f"{LEASE_OF}/{quiet}"))
        lab.do(ended)
        lab.hear(*heard.values(), *others.values())

    renewals = changed("leases", quiet, "spec.renewTime", LEASES)
    renewal_s = known["R"]
    in_time = windows.formula(
        "period", f"{renewal_s}", f"{renewal_s} - slack", f"1.04 * {renewal_s} + {AGAIN_S} + slack"
    )
    renewed = spaced(renewals, in_time, at_least=RENEWALS, **span)
    at_each_look = windows.formula(
        "period", f"{SLOWER_S}", f"{SLOWER_S} - slack", f"1.04 * {SLOWER_S} + {LOOK_S} + slack"
    )
    for check in (renewed, told):
        judge("heartbeat.two-forms", check)
    leased = changed("leases", chatty, "spec.renewTime", LEASES)
    as_often = windows.formula(
        "period", f"{renewal_s}", f"{renewal_s} - slack", f"1.04 * {renewal_s} + {LOOK_S / 2} + slack"
    )
    of_one_rate = [spaced(each, as_often, at_least=RENEWALS, **span) for each in (reports(chatty), leased)]
    for check in (*of_one_rate, outweighs(reports(chatty), leased, TIMES, **span)):
        judge("heartbeat.lease-reduces-load", check)
    judge("heartbeat.status-report-interval", told)
    for check in (told, alive):
        judge("heartbeat.status-longer-than-grace", check)
    lighter = amounts_to(ratio.what, ratio.subject, TIMES, 1000, recording_began(), ended.ended)
    judge("heartbeat.lease-lightweight", lighter)
    for node in (quiet, frequent):
        for source, low, high in ((heard[node], RENEWALS, 9999), (others[node], 0, 0)):
            many = counted(source.request, low, high, after=recording_began(), until=source.heard)
            judge("heartbeat.request-timeout", many)
    for check in (told, spaced(often, at_each_look, at_least=RENEWALS, **span)):
        judge("registration.status-update-frequency", check)


@claims(
    "heartbeat.request-timeout", "registration.status-update-frequency", "heartbeat.status-report-interval"
)
@needs(nodes=2, profile="documented")
def test_a_kubelet_without_settings_looks_at_its_status_every_ten_seconds(lab: Stage, judge: Judge) -> None:
    with lab.record():
        for claim in ("heartbeat.request-timeout", "registration.status-update-frequency"):
            judge(claim, default_of("nodeStatusUpdateFrequency"))
        judge("heartbeat.request-timeout", default_of("nodeLeaseDurationSeconds"))
        judge("heartbeat.status-report-interval", default_of("nodeStatusReportFrequency"))
