"""Labs start one at a time, and scenarios begin when all that slots begin with are up."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodeproof.session.gate import Gate
from tests.waiting import pause

SLOTS = 3


def test_labs_start_one_at_a_time(tmp_path: Path) -> None:
    starting, most = [0], [0]

    def start() -> None:
        with Gate(tmp_path, SLOTS).alone():
            starting[0] += 1
            most[0] = max(most[0], starting[0])
            pause(0.1)
            starting[0] -= 1

    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(lambda _slot: start(), range(SLOTS)))
    assert most == [1]


def test_nobody_begins_before_the_last_lab_is_up_and_nobody_waits_twice(tmp_path: Path) -> None:
    said: list[str] = []
    gates, last_up = [Gate(tmp_path, SLOTS) for _slot in range(SLOTS)], threading.Event()

    def begin(gate: Gate) -> bool:
        if gate is gates[-1]:
            pause(0.3)
            last_up.set()
        gate.wait(said.append)
        gate.wait(said.append)
        return last_up.is_set()

    with ThreadPoolExecutor(SLOTS) as pool:
        assert list(pool.map(begin, gates)) == [True] * SLOTS
    assert said == []


def test_who_never_comes_is_not_waited_for_without_end(tmp_path: Path) -> None:
    said: list[str] = []
    Gate(tmp_path, SLOTS, limit_s=0.2).wait(said.append)
    assert said == ["labs of other slots are not up after 0.2 s: starting without them"]


def test_who_died_is_not_waited_for_once_nobody_starts_a_lab_any_more(tmp_path: Path) -> None:
    said: list[str] = []
    began = time.monotonic()
    Gate(tmp_path, SLOTS, idle_s=0.3).wait(said.append)
    assert said == []
    assert 0.3 <= time.monotonic() - began < 5.0


def test_without_slots_there_is_no_gate_and_nothing_is_left_of_one(tmp_path: Path) -> None:
    began = time.monotonic()
    with Gate(tmp_path).alone():
        Gate(tmp_path).wait(print)
    assert time.monotonic() - began < 1.0
    with Gate(tmp_path, 1).alone():
        Gate(tmp_path, 1).wait(print)
    Gate.remove_files(tmp_path)
    assert list(tmp_path.iterdir()) == []
