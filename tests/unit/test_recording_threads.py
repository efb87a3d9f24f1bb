"""Threads of a recording: failures and ends are recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.labs.base import stalls
from nodeproof.labs.base.processes import EventLog
from nodeproof.machines.machine import MachineError
from nodeproof.model.clocks import Reading
from nodeproof.model.problem import Problem
from nodeproof.model.slack import LAB
from nodeproof.recording import recorder
from nodeproof.recording.recorder import Recording, RecordingContext
from tests.fakes import in_turn
from tests.waiting import eventually

TIMEOUT_S = 10.0
FEW = 3


def no_clock(name: str) -> Reading:
    raise MachineError(f"{name}: there is none")


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Return a recording that has not begun: nothing is watched."""
    monkeypatch.setattr(recorder, "_LOOK_PERIOD_S", 0.01)
    context = RecordingContext(("node-1",), "node-2", no_clock, tmp_path / "events.jsonl")
    recording = Recording(cast("Api", None), tmp_path / "history.jsonl", context)
    yield recording
    recording._stopping.set()
    for thread in recording._threads:
        thread.join(TIMEOUT_S)
    recording._out.close()


def entries(recording: Recording, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.data) for entry in recording.history().of_kind(kind)]


@pytest.mark.parametrize(
    "error", [ApiError(503, "busy"), MachineError("node-1: no end within 10 s"), Problem("a", "b", "c")]
)
def test_failed_observation_is_recorded_and_repeated(recording: Recording, error: Exception) -> None:
    recording.observe("status", "pod-1", in_turn("Running", error, "Unknown"))
    assert eventually(lambda: len(entries(recording, "observed")) >= FEW, TIMEOUT_S)
    values = [(data["value"], data.get("error")) for data in entries(recording, "observed")[:FEW]]
    assert values == [("Running", None), (None, str(error)), ("Unknown", None)]
    assert entries(recording, "broken") == []


def test_ended_observation_thread_records_its_subject(recording: Recording) -> None:
    recording.observe("status", "pod-1", in_turn("Running", KeyError("rows")))
    assert eventually(lambda: entries(recording, "broken"), TIMEOUT_S)
    (broken,) = entries(recording, "broken")
    assert broken == {"error": "KeyError: 'rows'", "what": "status", "subject": "pod-1"}


def test_repeated_action_is_repeated_after_a_failure(recording: Recording) -> None:
    deed = in_turn(MachineError("no answer"), "done")
    outcomes: list[str] = []
    recording.repeat(0.01, lambda: outcomes.append(deed()))
    assert eventually(lambda: len(outcomes) >= FEW, TIMEOUT_S)
    assert entries(recording, "broken") == []


def test_watch_with_an_ended_thread_has_a_gap_from_then_on(recording: Recording) -> None:
    def follow() -> None:
        raise ValueError("no JSON")

    recording._start_thread(follow, resource="nodes")
    assert eventually(lambda: entries(recording, "gap"), TIMEOUT_S)
    assert entries(recording, "broken") == [{"error": "ValueError: no JSON", "resource": "nodes"}]
    history = recording.history()
    gap = history.gap("nodes", history.ended_t + 5.0, history.ended_t + 6.0)
    assert gap is not None
    assert gap.reason == "ValueError: no JSON"
    assert history.gap("pods", 0.0, history.ended_t + 6.0) is None


def test_failed_lab_measurement_is_recorded_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "AGAIN_S", 0.0)
    events, ended, begun = EventLog(tmp_path / "events.jsonl"), threading.Event(), list[int]()

    def tell() -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            raise ValueError("no number")
        ended.set()

    stalls._keep_measuring(tell, events, ended)
    (event,) = [json.loads(line) for line in events.path.read_text().splitlines()]
    assert len(begun) == 2
    assert (event["kind"], event["error"], event["by"]) == ("broken", "ValueError: no number", LAB)
