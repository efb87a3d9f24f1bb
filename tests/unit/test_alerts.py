"""Firing alerts: which count, and that nothing begins without an answer about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodeproof.existing.conditions import Alerts, Matcher
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.session.options import Options, resolve
from tests.small_server import Page, serving
from tests.unit import own_cluster

TIMEOUT_S = 0.5
DISK = {"alertname": "DiskFull", "severity": "critical", "team": "storage"}
WATCHDOG = {"alertname": "Watchdog", "severity": "none"}
CRITICAL, NO_WATCHDOG = 'severity="critical"', 'alertname!="Watchdog"'


@pytest.fixture
def page() -> Iterator[Page]:
    with serving(Page()) as page:
        yield page


def of_prometheus(*firing: Json, pending: Json = None) -> str:
    alerts = [{"labels": labels, "state": "firing"} for labels in firing]
    alerts += [{"labels": pending, "state": "pending"}] if pending else []
    return json.dumps({"status": "success", "data": {"alerts": alerts}})


def of_alertmanager(*active: Json) -> str:
    return json.dumps([{"labels": labels, "status": {"state": "active"}} for labels in active])


def refusal(page: Page, kind: str, *matchers: str) -> str:
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
def test_alert_that_fires_and_matches_refuses(
    page: Page, body: str, matchers: tuple[str, ...], reason: str
) -> None:
    page.body = body
    assert refusal(page, "prometheus", *matchers) == reason
    assert page.paths == ["/prefix/api/v1/alerts"]


def test_alertmanager_is_asked_for_active_alerts(page: Page) -> None:
    page.body = of_alertmanager(DISK, WATCHDOG)
    assert refusal(page, "alertmanager", CRITICAL) == "firing: DiskFull"
    assert page.paths == ["/prefix/api/v2/alerts?active=true&silenced=false&inhibited=false"]


def test_many_alerts_are_counted(page: Page) -> None:
    page.body = of_prometheus(*({"alertname": f"A{number}"} for number in range(8)))
    assert refusal(page, "prometheus") == "firing: A0, A1, A2, A3, A4 and 3 more"


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
def test_no_answer_refuses(page: Page, kind: str, status: int, body: str, reason: str) -> None:
    page.status, page.body = status, body
    assert refusal(page, kind).startswith(reason)


def test_silent_server_refuses(page: Page) -> None:
    page.answer_now.clear()
    assert "timed out" in refusal(page, "prometheus")


class Silent(own_cluster.JsonHandler):
    """An API server that no request should reach."""

    requests: tuple[str, ...] = ()

    def do_GET(self) -> None:
        Silent.requests = (*Silent.requests, self.path)
        self.answer(500, {})


def test_run_is_refused_in_one_line_before_the_cluster_is_contacted(page: Page, tmp_path: Path) -> None:
    page.body = of_prometheus(DISK)
    with own_cluster.serving(Silent, tmp_path, ["unit-down"]):
        inventory = tmp_path / "cluster.yaml"
        content = yaml.safe_load(inventory.read_text()) | {"alerts": {"prometheus": page.url}}
        inventory.write_text(yaml.safe_dump(content))
        with pytest.raises(Problem, match=r"no run may begin now: alerts of .*: firing: DiskFull") as refused:
            resolve(Options(cluster=str(inventory)))
    assert len(str(refused.value).splitlines()) == 1
    assert Silent.requests == ()
