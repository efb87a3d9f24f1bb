"""How long processes waited for a processor: read from real ones that have to share one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.labs.ground.processes import EventLog, Processes
from nodeproof.labs.ground.stalls import RunQueueWaits, one_after_another_s, tell_stalls
from tests.waiting import pause

BUSY = "while True: pass"
PROC = Path("/proc")
PASSED_S = 0.3


@pytest.fixture
def rivals() -> Iterator[list[int]]:
    """Two processes that want the same processor all the time."""
    processor = str(min(os.sched_getaffinity(0)))
    started = [subprocess.Popen(["taskset", "-c", processor, sys.executable, "-c", BUSY]) for _ in range(2)]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def test_who_has_to_share_a_processor_waited_for_it(rivals: list[int]) -> None:
    waits = RunQueueWaits(PROC)
    first = [waits.since_last_look_s(pid) for pid in rivals]
    pause(1)
    assert first == [0, 0]
    assert all(waits.since_last_look_s(pid) > 0.2 for pid in rivals)


def test_a_lab_tells_how_long_a_virtual_machine_waited(rivals: list[int], tmp_path: Path) -> None:
    events, ended = EventLog(tmp_path / "events.jsonl"), threading.Event()
    processes = Processes(tmp_path, events)
    processes.found("node-node-1", rivals[0])
    tell_stalls(events, processes, ended)
    pause(1)
    ended.set()
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert max(entry.get("waited_s", 0.0) for entry in told) > 0.05
    processes.found("node-node-1", None)
    assert processes.others() == {}


def test_a_process_that_is_gone_waited_for_nothing() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    waits = RunQueueWaits(PROC)
    assert [waits.since_last_look_s(ended.pid), waits.since_last_look_s(ended.pid)] == [0, 0]


def test_a_kernel_that_tells_of_no_waits_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "7/task/7").mkdir(parents=True)
    waits = RunQueueWaits(tmp_path)
    assert [waits.since_last_look_s(7), waits.since_last_look_s(7)] == [0, 0]


@pytest.mark.parametrize(
    ("waited", "expected"),
    [
        ({}, 0.0),
        ({"etcd": 0.03, "kube-apiserver": 0.04, "kubelet-node-1": 0.02, "kubelet-node-2": 0.05}, 0.12),
        ({"etcd": 0.03, "node-node-1": 0.1, "node-node-2": 0.2}, 0.23),
        ({"etcd": 0.19, "kube-apiserver": 0.19, "kube-scheduler": 0.19, "kubelet-node-1": 0.19}, PASSED_S),
        ({"etcd": 0.01, "kube-controller-manager": 0.9}, 0.9),
    ],
)
def test_nobody_waits_longer_in_turn_than_time_went_by(waited: dict[str, float], expected: float) -> None:
    assert one_after_another_s(waited, PASSED_S) == pytest.approx(expected)
