"""Working hours and firing alerts: when a run and a fault may begin."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeproof.existing.guards import DAYS, Alerts, Hours, Matcher
from nodeproof.model.pattern import Json
from tests.small_server import Page
from tests.unit.own_cluster import refuse_run

BERLIN = Hours("Europe/Berlin", ("Mon", "Tue", "Sun"), "09:00", "16:00")
MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Midnight in UTC; 01:00 in Berlin."""
SUMMER = datetime(2030, 7, 1, tzinfo=UTC)
"""A Monday, 02:00 in Berlin."""


def refusal(hours: Hours, begin: datetime, lasts: timedelta = timedelta()) -> str:
    return "; ".join(hours.refusals(begin, begin + lasts))


@pytest.mark.parametrize(
    ("begin", "is_allowed"),
    [
        (MONDAY + timedelta(hours=8), True),
        (MONDAY + timedelta(hours=7, minutes=59, seconds=59), False),
        (MONDAY + timedelta(hours=15), True),
        (MONDAY + timedelta(hours=15, seconds=1), False),
        (MONDAY + timedelta(days=2, hours=10), False),
        (SUMMER + timedelta(hours=7), True),
        (SUMMER + timedelta(hours=14, minutes=1), False),
    ],
)
def test_hours_are_in_the_time_zone(begin: datetime, is_allowed: bool) -> None:
    assert (refusal(BERLIN, begin) == "") == is_allowed


def test_weekday_is_in_the_time_zone() -> None:
    auckland = Hours("Pacific/Auckland", ("Tue",), "00:00", "24:00")
    assert refusal(auckland, MONDAY + timedelta(hours=12)) == ""
    assert refusal(auckland, MONDAY + timedelta(days=1, hours=12)) != ""


@pytest.mark.parametrize(
    ("lasts", "reason"),
    [
        (timedelta(minutes=30), ""),
        (timedelta(minutes=31), "the fault may last until Mon 16:01, outside of the working hours"),
        (timedelta(hours=24), "the fault may last until Tue 15:30, outside of the working hours"),
    ],
)
def test_fault_must_end_in_the_hours_of_its_day(lasts: timedelta, reason: str) -> None:
    assert refusal(BERLIN, MONDAY + timedelta(hours=14, minutes=30), lasts).startswith(reason or "")
    assert bool(refusal(BERLIN, MONDAY + timedelta(hours=14, minutes=30), lasts)) == bool(reason)


def test_fault_across_time_change_ends_by_local_time() -> None:
    # On this Sunday the clock goes from 02:00 to 03:00.
    before = datetime(2030, 3, 31, 0, 30, tzinfo=UTC)
    early = replace(BERLIN, since="01:00", until="03:10")
    assert refusal(early, before, timedelta(minutes=40)) == ""
    assert "Sun 03:11" in refusal(early, before, timedelta(minutes=41))


def test_run_outside_of_the_hours_is_refused_before_the_cluster_is_contacted(tmp_path: Path) -> None:
    day = DAYS[(datetime.now(UTC).weekday() + 3) % len(DAYS)]
    hours = {"zone": "UTC", "days": [day], "from": "09:00", "to": "16:00"}
    refuse_run(tmp_path, f"outside of the working hours {day} 09:00-16:00 UTC", hours=hours)


# Firing alerts: which count, and that nothing begins without an answer about them.


TIMEOUT_S = 0.5
DISK = {"alertname": "DiskFull", "severity": "critical", "team": "storage"}
WATCHDOG = {"alertname": "Watchdog", "severity": "none"}
CRITICAL, NO_WATCHDOG = 'severity="critical"', 'alertname!="Watchdog"'


def of_prometheus(*firing: Json, pending: Json = None) -> str:
    alerts = [{"labels": labels, "state": "firing"} for labels in firing]
    alerts += [{"labels": pending, "state": "pending"}] if pending else []
    return json.dumps({"status": "success", "data": {"alerts": alerts}})


def of_alertmanager(*active: Json) -> str:
    return json.dumps([{"labels": labels, "status": {"state": "active"}} for labels in active])


def firing(page: Page, kind: str, *matchers: str) -> str:
    alerts = Alerts(kind, f"{page.url}/prefix/", tuple(map(Matcher.of, matchers)), TIMEOUT_S)
    return "; ".join(alerts.refusals()).removeprefix(f"alerts of {page.url}/prefix/: ")


@pytest.mark.parametrize(
    ("body", "matchers", "reason"),
    [
        (of_prometheus(), (), ""),
        (of_prometheus(DISK, WATCHDOG), (), "firing: DiskFull, Watchdog"),
        (of_prometheus(DISK, WATCHDOG), (NO_WATCHDOG,), "firing: DiskFull"),
        (of_prometheus(WATCHDOG), (NO_WATCHDOG,), ""),
        (of_prometheus(DISK), (CRITICAL, 'team="shop"'), ""),
        (of_prometheus(pending=DISK), (), ""),
        (of_prometheus({"severity": "critical"}), (), "firing: ?"),
    ],
)
def test_firing_alert_refuses_the_fault(
    page: Page, body: str, matchers: tuple[str, ...], reason: str
) -> None:
    page.body = body
    assert firing(page, "prometheus", *matchers) == reason
    assert page.paths == ["/prefix/api/v1/alerts"]


def test_alertmanager_is_asked_for_active_alerts(page: Page) -> None:
    page.body = of_alertmanager(DISK, WATCHDOG)
    assert firing(page, "alertmanager", CRITICAL) == "firing: DiskFull"
    assert page.paths == ["/prefix/api/v2/alerts?active=true&silenced=false&inhibited=false"]


def test_many_alerts_are_counted(page: Page) -> None:
    page.body = of_prometheus(*({"alertname": f"A{number}"} for number in range(8)))
    assert firing(page, "prometheus") == "firing: A0, A1, A2, A3, A4 and 3 more"


@pytest.mark.parametrize(
    ("text", "labels", "is_met"),
    [
        ("severity=critical", DISK, True),
        ('severity = "crit"', DISK, False),
        ("severity=~crit.*", DISK, True),
        ("severity=~crit", DISK, False),
        ('severity!~"none|info"', DISK, True),
        ("severity!~none|info", WATCHDOG, False),
        ("team=", WATCHDOG, True),
        ('team!=""', WATCHDOG, False),
    ],
)
def test_matcher_reads_as_in_alertmanager(text: str, labels: dict[str, str], is_met: bool) -> None:
    assert Matcher.of(text).matches(labels) == is_met


@pytest.mark.parametrize("kind", ["prometheus", "alertmanager"])
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, of_prometheus(), "HTTP 503"),
        (200, "<html>", "no JSON: <html>"),
        (200, '{"status": "error"}', "the answer is no "),
        (200, '[{"labels": {}}]', "the answer is no "),
        (200, "null", "the answer is no "),
    ],
)
def test_missing_answer_refuses_the_fault(page: Page, kind: str, status: int, body: str, reason: str) -> None:
    page.status, page.body = status, body
    assert firing(page, kind).startswith(reason)


def test_silent_server_refuses_the_fault(page: Page) -> None:
    page.answer_now.clear()
    assert "timed out" in firing(page, "prometheus")


def test_run_is_refused_in_one_line_before_the_cluster_is_contacted(page: Page, tmp_path: Path) -> None:
    page.body = of_prometheus(DISK)
    reason = "no run may begin now: alerts of .*: firing: DiskFull"
    refuse_run(tmp_path, reason, alerts={"prometheus": page.url})
