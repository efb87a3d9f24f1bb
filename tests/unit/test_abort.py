"""Conditions that abort a fault: what counts as one, and a poll that fails."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from nodeproof.existing.guards import Abort, Command, Condition, Query, Url
from nodeproof.model.pattern import Json
from nodeproof.safety.injector import AbortPoll, AbortWatch
from tests.fakes import executable
from tests.small_server import Page, serving
from tests.waiting import throughout

TIMEOUT_S, SOON_S, LATE_S = 0.5, 10.0, 0.3
EMPTY: list[Json] = []
SERIES: list[Json] = [{"metric": {}, "value": [1, "1"]}]


def reasons(folder: Path, *conditions: Condition) -> list[str]:
    return Abort(conditions, timeout_s=TIMEOUT_S).reasons(folder)


def result(kind: str, series: object, **fields: Json) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": series}, **fields})


@pytest.mark.parametrize(("status", "reason"), [(200, ""), (204, ""), (302, "HTTP 302"), (503, "HTTP 503")])
def test_page_must_answer_with_success(page: Page, tmp_path: Path, status: int, reason: str) -> None:
    page.status, page.location = status, "/elsewhere" if status == 302 else ""
    expected = [f"abort condition {page.url}/healthz: {reason}"] if reason else []
    assert reasons(tmp_path, Url(f"{page.url}/healthz")) == expected
    assert page.paths == ["/healthz"]


def test_unreachable_server_aborts(tmp_path: Path) -> None:
    with serving(Page()) as page:
        url = page.url
    (reason,) = reasons(tmp_path, Url(url))
    assert reason.endswith("Connection refused")


def test_silent_server_aborts_in_time_and_hides_no_other(page: Page, tmp_path: Path) -> None:
    page.answer_now.clear()
    began_t = time.monotonic()
    silent, failed = sorted(reasons(tmp_path, Url(page.url), Command(("false",))), reverse=True)
    assert time.monotonic() - began_t < SOON_S
    assert "no answer" in silent or "timed out" in silent
    assert failed == "abort condition false: exit code 1"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 0", ""), ("echo too many >&2; exit 3", "exit code 3: too many"), ("exec sleep 60", "timed out")],
)
def test_command_must_exit_with_0(tmp_path: Path, script: str, reason: str) -> None:
    executable(tmp_path / "check.sh", script)
    expected = [f"abort condition ./check.sh: {reason}"] if reason else []
    assert reasons(tmp_path, Command(("./check.sh",))) == expected


def test_program_that_does_not_exist_aborts(tmp_path: Path) -> None:
    (reason,) = reasons(tmp_path, Command(("./absent",)))
    assert "No such file" in reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (result("vector", EMPTY), ""),
        (result("vector", SERIES), "the result is not empty: 1 series"),
        (result("scalar", [1, "0"]), "the result is a scalar, not a vector"),
        (result("vector", EMPTY, warnings=["store sts-0"]), "the answer is partial: store sts-0"),
        ("{}", "the answer is no success of Prometheus"),
        ("[]", "the answer is no success of Prometheus"),
        ("<html>", "no JSON: <html>"),
    ],
)
def test_result_of_a_query_must_be_empty(page: Page, tmp_path: Path, body: str, reason: str) -> None:
    page.body = body
    expected = [f"abort condition up == 0 at {page.url}/prometheus/: {reason}"] if reason else []
    assert reasons(tmp_path, Query(f"{page.url}/prometheus/", "up == 0")) == expected
    assert page.paths == ["/prometheus/api/v1/query?query=up+%3D%3D+0"]


def test_poll_that_fails_aborts() -> None:
    aborts, aborted = list[str](), threading.Event()

    def fail() -> list[str]:
        raise RuntimeError("no file left")

    def abort(reason: str, _stopping: threading.Event) -> None:
        aborts.append(reason)
        aborted.set()

    AbortWatch(AbortPoll(fail, 0.01), abort).start()
    assert aborted.wait(SOON_S)
    assert aborts == ["the poll failed: RuntimeError('no file left')"]


def test_nothing_is_aborted_after_the_fault_has_ended() -> None:
    polling, answer, aborts = threading.Event(), threading.Event(), list[str]()

    def answer_late() -> list[str]:
        polling.set()
        answer.wait(SOON_S)
        return ["HTTP 503"]

    watch = AbortWatch(AbortPoll(answer_late, 0.01), lambda reason, _stopping: aborts.append(reason))
    watch.start()
    assert polling.wait(SOON_S)
    watch.stop(SOON_S)
    answer.set()
    assert throughout(lambda: not aborts, LATE_S)
    assert not watch.reason
