"""A thread of a recording that fails, or ends, says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.labs.ground import stalls
from nodeproof.labs.ground.processes import EventLog
from nodeproof.machines.machine import MachineError
from nodeproof.model.clocks import Reading
from nodeproof.model.problem import Problem
from nodeproof.model.slack import LAB
from nodeproof.recording import recorder
from nodeproof.recording.recorder import Recording, Setting
from tests.waiting import eventually

LIMIT_S = 10.0
FEW = 3


def no_clock(name: str) -> Reading:
    raise MachineError(f"{name}: there is none")


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """One that has not begun: nothing is watched."""
    monkeypatch.setattr(recorder, "_LOOK_PERIOD_S", 0.01)
    setting = Setting(("node-1",), "node-2", no_clock, tmp_path / "events.jsonl")
    made = Recording(cast("Api", None), tmp_path / "history.jsonl", setting)
    yield made
    made._stopping.set()
    for thread in made._threads:
        thread.join(LIMIT_S)
    made._out.close()


def entries(recording: Recording, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.data) for entry in recording.history().of_kind(kind)]


def in_turn(*answers: str | Exception) -> Callable[[], str]:
    """Give these, and the last one again and again."""
    left = list(answers)

    def look() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


@pytest.mark.parametrize(
    "error", [ApiError(503, "busy"), MachineError("node-1: no end within 10 s"), Problem("a", "b", "c")]
)
def test_a_look_without_an_answer_is_written_down_and_the_next_one_is_made(
    recording: Recording, error: Exception
) -> None:
    recording.look_at("status", "pod-1", in_turn("Running", error, "Unknown"))
    assert eventually(lambda: len(entries(recording, "observed")) >= FEW, LIMIT_S)
    seen = [(data["value"], data.get("error")) for data in entries(recording, "observed")[:FEW]]
    assert seen == [("Running", None), (None, str(error)), ("Unknown", None)]
    assert entries(recording, "broken") == []


def test_a_thread_that_looks_and_ends_says_what_nobody_observes_any_more(recording: Recording) -> None:
    recording.look_at("status", "pod-1", in_turn("Running", KeyError("rows")))
    assert eventually(lambda: entries(recording, "broken"), LIMIT_S)
    (broken,) = entries(recording, "broken")
    assert broken == {"error": "KeyError: 'rows'", "what": "status", "subject": "pod-1"}


def test_what_is_done_again_and_again_is_done_again_after_it_failed(recording: Recording) -> None:
    deed = in_turn(MachineError("no answer"), "done")
    done: list[str] = []
    recording.repeat(0.01, lambda: done.append(deed()))
    assert eventually(lambda: len(done) >= FEW, LIMIT_S)
    assert entries(recording, "broken") == []


def test_a_watch_whose_thread_ends_is_blind_from_then_on(recording: Recording) -> None:
    def follow() -> None:
        raise ValueError("no JSON")

    recording._start_thread(follow, resource="nodes")
    assert eventually(lambda: entries(recording, "gap"), LIMIT_S)
    assert entries(recording, "broken") == [{"error": "ValueError: no JSON", "resource": "nodes"}]
    history = recording.history()
    gap = history.gap("nodes", history.ended_t + 5.0, history.ended_t + 6.0)
    assert gap is not None
    assert gap.data["reason"] == "ValueError: no JSON"
    assert history.gap("pods", 0.0, history.ended_t + 6.0) is None


def test_what_fails_to_measure_a_lab_says_so_and_begins_again(
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
    (told,) = [json.loads(line) for line in events.path.read_text().splitlines()]
    assert len(begun) == 2
    assert (told["kind"], told["error"], told["by"]) == ("broken", "ValueError: no number", LAB)
