"""Status reports of idle nodes."""

from collections.abc import Mapping
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Node
from nodeproof.scenario.sources import Audit, audit
from nodeproof.scenario.types import Check, Moment

SELDOM, EVERY_5_S, OFTEN = Node("quiet"), Node("frequent"), Node("chatty")
"""Kubelets that report their status every two grace periods, every 5 s, and as often as they renew Leases."""
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LATE_S = 1
"""The next check is counted from the end of the last one, which takes longer on a busy machine."""
RETRANSMISSION_S = 0.7
"""Time that TCP takes to resend a lost packet twice (200 ms, 400 ms), as may happen to one renewal of many.
`heartbeat.lease-interval` judges how precise a kubelet is.
"""
SIZE_RATIO = 4
"""A Lease is at least this many times smaller than its Node."""


@needs(nodes=2, duration_s="5G + 15")
def test_idle_kubelet_renews_its_lease_and_seldom_reports_its_status(lab: Lab, claim: Expectations) -> None:
    """The first interval after a change is random and is not judged."""
    interval_s, update_s = int(2 * lab.configuration["G"]), int(lab.configuration["U"])
    settled, ended = actions.label_node(SELDOM, "settled", "yes"), actions.label_node(SELDOM, "ended", "yes")
    span = {"after": settled.ended, "until": ended.begun}
    high = f"{interval_s} + 1.04 * {update_s} + slack"
    interval = windows.formula("period", f"{interval_s}", f"{interval_s} - slack", high)

    with lab.record():
        join_kubelets(lab, interval_s)
        lab.run(settled)
        rare_reports = checks.spaced(SELDOM.status_report, interval, at_least=1, **span)
        longer = claim("heartbeat.status-longer-than-grace")
        claim("heartbeat.status-report-interval").expect(rare_reports)
        claim("heartbeat.two-forms").expect_later(rare_reports)
        longer.expect_later(rare_reports)
        claim("registration.status-update-frequency").expect_later(rare_reports)
        longer.never(SELDOM.unknown, throughout=2 * interval_s, after=settled.ended)
        ratio = lab.observe(probes.size_ratio(f"/api/v1/nodes/{SELDOM}", f"{LEASES_PATH}/{SELDOM}"))
        lab.run(ended)
        recorded = moments.recording_began(), ended.ended
        smaller = checks.amounts_to(ratio.what, ratio.subject, SIZE_RATIO, 1000, *recorded)
        claim("heartbeat.lease-lightweight").expect_later(smaller)
        expect_timeouts(lab, claim)
    expect_intervals(claim, lab.configuration["R"], span)


def join_kubelets(lab: Lab, interval_s: int) -> None:
    """Join the three kubelets, and wait until their Nodes are Ready and settled."""
    lab.run(actions.join(SELDOM, nodeStatusReportFrequency=f"{interval_s}s"))
    at_each_check: Any = {"nodeStatusReportFrequency": "0s"}
    frequent: Any = {"nodeLeaseDurationSeconds": 4, "nodeStatusUpdateFrequency": "5s", **at_each_check}
    lab.run(actions.join(EVERY_5_S, **frequent))
    renewal = f"{lab.configuration['R']:g}s"
    lab.run(actions.join(OFTEN, nodeStatusUpdateFrequency=renewal, **at_each_check))
    for node in (OFTEN, EVERY_5_S, SELDOM):
        lab.wait_for(node.ready.after(node.created, 60.0))
    lab.wait_for(SELDOM.removed.never_after(SELDOM.ready, 2 * lab.configuration["U"]))


def expect_timeouts(lab: Lab, claim: Expectations) -> None:
    """Expect that the requests of a kubelet have the timeout that its settings imply."""
    update_timeout_s = min(int(lab.configuration["U"]), int(4 * lab.configuration["R"]))
    timeouts = {SELDOM: f"timeout={update_timeout_s}s", EVERY_5_S: "timeout=4s"}
    with_timeout = [requests(node, {"$contains": timeout}) for node, timeout in timeouts.items()]
    others = [requests(node, {"$not": {"$contains": timeout}}) for node, timeout in timeouts.items()]
    lab.collect(*with_timeout, *others)
    for sources, low, high in ((with_timeout, 5, 9999), (others, 0, 0)):
        for source in sources:
            span = {"after": moments.recording_began(), "until": source.collected}
            timeout = checks.counted(source.request, low, high, **span)
            claim("heartbeat.request-timeout").expect_later(timeout)


def expect_intervals(claim: Expectations, renewal_s: float, span: Mapping[str, Moment]) -> None:
    """Expect the intervals of Lease renewals, and of status reports without an interval of their own."""
    renewal = periodic(SELDOM.lease_renewal, renewal_s, RETRANSMISSION_S, span)
    claim("heartbeat.two-forms").expect_later(renewal)
    reduces_load = claim("heartbeat.lease-reduces-load")
    for moment in (OFTEN.status_report, OFTEN.lease_renewal):
        reduces_load.expect_later(periodic(moment, renewal_s, LATE_S / 2, span))
    heavier = checks.writes_more_than(OFTEN.status_report, OFTEN.lease_renewal, SIZE_RATIO, **span)
    reduces_load.expect_later(heavier)
    update = periodic(EVERY_5_S.status_report, 5, LATE_S, span)
    claim("registration.status-update-frequency").expect_later(update)


def requests(node: Node, uri: Mapping[str, Any]) -> Audit:
    """Match the status reports and Lease renewals of a kubelet with such a URI."""
    writes = {"verb": {"$in": ["update", "patch"]}, "resource": {"$in": ["nodes", "leases"]}}
    return audit(user=f"system:node:{node}", **writes, uri=uri)


def periodic(moment: Moment, period_s: float, late_s: float, span: Mapping[str, Moment]) -> Check:
    """Check that a moment recurs with a period, which a jitter of 4 % and `late_s` may extend."""
    high = f"1.04 * {period_s} + {late_s} + slack"
    window = windows.formula("period", f"{period_s}", f"{period_s} - slack", high)
    return checks.spaced(moment, window, at_least=5, **span)


@needs(nodes=2, profile="documented")
def test_kubelet_status_and_lease_settings_have_their_defaults(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        update = checks.default_of("nodeStatusUpdateFrequency")
        claim("heartbeat.request-timeout").expect_later(update)
        claim("registration.status-update-frequency").expect_later(update)
        claim("heartbeat.request-timeout").expect_later(checks.default_of("nodeLeaseDurationSeconds"))
        claim("heartbeat.status-report-interval").expect_later(checks.default_of("nodeStatusReportFrequency"))
