"""The lab's dead-man's switch: it retries until healed, and disarming is final."""

from __future__ import annotations

import errno
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeproof.labs.base import processes
from nodeproof.labs.base.processes import EventLog
from nodeproof.labs.supervisor import init
from nodeproof.labs.supervisor.init import Deadman
from nodeproof.machines.machine import MachineError
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from tests.waiting import eventually, throughout

FAULT = {"fault": "partition", "id": "cut", "node": "node-1"}
SHORT_S, LONG_S, TIMEOUT_S, QUIET_S = 0.05, 60.0, 5.0, 0.5


class Healing:
    """A heal that fails this many times, and can be blocked in the middle."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or MachineError("node-1: it boots")
        self.began = 0
        self.healed = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, fault: Mapping[str, Json]) -> None:
        assert fault == FAULT
        self.began += 1
        self.may_go_on.wait(TIMEOUT_S)
        if self.began <= self.failures:
            raise self.error
        self.healed += 1


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "_RETRY_PERIOD_S", 0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def kinds(log: Path) -> list[str]:
    """Return the kinds of all events; half a line, which a full disk leaves for an instant, is none."""
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line)["kind"] for line in lines if line.endswith("\n")]


def armed(log: Path, healing: Healing, ttl_s: float = SHORT_S) -> Deadman:
    switch = Deadman(healing, EventLog(log))
    switch.arm(FAULT, ttl_s)
    return switch


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, log: Path) -> Iterator[pytest.MonkeyPatch]:
    """Limit the event log's disk to half a line; undo it to free space."""
    real = processes.open_owned

    def torn(path: Path) -> int:
        if path != log or not log.exists():
            return real(path)
        with path.open("a") as out:
            out.write('{"t": 1.0, "kind": "mach')
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(processes, "_RETRY_PERIOD_S", 0.01)
        patch.setattr(processes, "open_owned", torn)
        yield patch


@pytest.mark.parametrize("failures", [0, 3])
def test_deadman_heals_despite_a_full_disk(log: Path, full: pytest.MonkeyPatch, failures: int) -> None:
    switch = armed(log, healing := Healing(failures))
    assert eventually(lambda: healing.healed, TIMEOUT_S) == 1
    assert eventually(lambda: not switch.armed(), TIMEOUT_S)
    healed_t = time.monotonic()
    full.undo()
    expected = ["deadman", *(["deadman-failed"] if failures else [])]
    assert eventually(lambda: kinds(log) == expected, TIMEOUT_S), "said as soon as there was room"
    assert json.loads(log.read_text().splitlines()[0])["t"] < healed_t


def test_event_refused_by_the_disk_leaves_no_partial_line(log: Path, full: pytest.MonkeyPatch) -> None:
    events = EventLog(log)
    events.write("machine", step="booted")
    events.write("machine", step="powered-off")
    assert eventually(lambda: log.read_text() == "", TIMEOUT_S), "half a line is there for an instant only"
    full.undo()
    events.write("machine", step="thawed")
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == ["booted", "powered-off", "thawed"]


@pytest.mark.parametrize(
    "error", [None, subprocess.TimeoutExpired("kill", 1.0), OSError("boot_id"), KeyError("x"), ValueError()]
)
def test_deadman_retries_until_healed_whatever_the_error(log: Path, error: Exception | None) -> None:
    switch = armed(log, healing := Healing(failures=30, error=error))
    assert eventually(lambda: healing.healed, TIMEOUT_S) == 1
    assert eventually(lambda: not switch.armed(), TIMEOUT_S)
    assert kinds(log) == ["deadman", "deadman-failed"]
    assert json.loads(log.read_text().splitlines()[1])["reason"]
    assert switch.faults() == [FAULT], "no probe has proven it"


def test_deadman_stops_healing_once_disarmed(log: Path) -> None:
    switch = armed(log, healing := Healing(failures=10**9))
    assert eventually(lambda: healing.began, TIMEOUT_S)
    switch.arm(FAULT, 0)
    last = healing.began + 1
    assert throughout(lambda: healing.began <= last, QUIET_S)
    assert switch.faults() == []


def test_switch_renewed_during_a_heal_can_be_disarmed(log: Path) -> None:
    healing = Healing()
    healing.may_go_on.clear()
    switch = armed(log, healing)
    assert eventually(lambda: healing.began, TIMEOUT_S)
    switch.arm(FAULT, QUIET_S)
    healing.may_go_on.set()
    assert eventually(lambda: healing.healed, TIMEOUT_S)
    assert list(switch.armed()) == ["cut"]
    switch.arm(FAULT, 0)
    assert throughout(lambda: healing.began == 1, 2 * QUIET_S)


def test_late_renewal_does_not_rearm_a_disarmed_switch(log: Path) -> None:
    switch = armed(log, healing := Healing(), LONG_S)
    for _time in range(2):
        switch.arm(FAULT, 0)
    with pytest.raises(Problem, match="was disarmed"):
        switch.arm(FAULT, SHORT_S)
    assert throughout(lambda: not healing.began, QUIET_S)
    assert switch.armed() == {}
