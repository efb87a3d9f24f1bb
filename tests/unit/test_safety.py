"""Safety: ledgers, signals during cleanup, and unanswered probes."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.settings import ReplaceFile
from nodeproof.faults.units import KubeProxy, UnitDown
from nodeproof.machines.machine import CommandResult, Machine, MachineError
from nodeproof.safety import injector
from nodeproof.safety import ledger as ledgers
from nodeproof.safety.deadman import Deadman
from nodeproof.safety.guard import Declared, Record
from nodeproof.safety.injector import Aborted, AbortPoll, Injector
from nodeproof.safety.ledger import Ledger, labs_with_ledgers
from nodeproof.safety.shield import SIGNALS, interrupt_once, uninterrupted
from tests.fakes import Local
from tests.waiting import eventually

# The ledger: entries on disk are readable whatever happened to its end


FAULT = {"fault": "partition", "id": "00000001", "node": "node-1", "direction": "both"}
OTHER = {**FAULT, "id": "00000002"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger with one active fault."""
    ledger = Ledger("p-000001", tmp_path / "ledger")
    for step in ("planned", "armed", "injecting", "injected"):
        ledger.write(step, FAULT)
    return ledger


def open_faults(ledger: Ledger) -> list[tuple[str, str]]:
    return [(str(entry.fault["id"]), entry.step) for entry in ledger.unfinished()]


def test_each_step_is_one_line_until_the_fault_is_closed(ledger: Ledger) -> None:
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [line["step"] for line in lines] == ["planned", "armed", "injecting", "injected"]
    assert all(line["fault"] == FAULT for line in lines)
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    assert open_faults(ledger) == [("00000001", "injected")]
    ledger.write("closed", FAULT)
    assert open_faults(ledger) == []


def test_fault_with_a_last_line_torn_anywhere_stays_open(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        ledger.path.write_bytes(whole[:end])
        ((fault, step),) = open_faults(ledger)
        assert (fault, step) == ("00000001", "injected" if end == len(whole) - 1 else "injecting")


def test_entries_after_a_torn_line_are_read(ledger: Ledger) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes()[:-9])
    ledger.write("planned", OTHER)
    ledger.write("closed", FAULT)
    assert open_faults(ledger) == [("00000002", "planned")]


@pytest.mark.parametrize(
    "line", ["1", "null", "[]", "{}", '{"fault": 1, "step": "planned"}', "\x00\x00", "}"]
)
def test_invalid_lines_are_ignored(ledger: Ledger, line: str) -> None:
    with ledger.path.open("a") as out:
        out.write(f"{line}\n")
    assert open_faults(ledger) == [("00000001", "injected")]


def test_concurrent_writers_lose_no_line(ledger: Ledger) -> None:
    def write() -> None:
        for _time in range(20):
            ledger.write("planned", OTHER)

    threads = [threading.Thread(target=write) for _worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.path.read_text().splitlines()) == 4 + 80


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (socket, "gethostname", lambda: "some/where else"),
        (ledgers, "_BOOT_ID", Path("/proc/sys/kernel/ostype")),
        (os, "getuid", lambda: 4711),
    ],
    ids=["another machine", "another boot", "another user"],
)
def test_ledgers_of_another_host_in_the_same_home_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, name, value)
        theirs = Ledger("p-000001", tmp_path)
        theirs.write("planned", FAULT)
        assert labs_with_ledgers(tmp_path) == ["p-000001"]
    Ledger("p-000002", tmp_path).write("planned", FAULT)
    assert labs_with_ledgers(tmp_path) == ["p-000002"]
    Ledger("p-000001", tmp_path).forget()
    assert theirs.path.exists()


def test_zone_lease_finds_its_own_faults_and_lab_lease_all(tmp_path: Path) -> None:
    whole = Ledger("p-000001", tmp_path)
    first, second = (Ledger("p-000001", tmp_path, lease=zone) for zone in ("zone-a", "zone-b"))
    first.write("planned", FAULT)
    second.write("planned", OTHER)
    assert open_faults(first) == [("00000001", "planned")]
    assert open_faults(second) == [("00000002", "planned")]
    assert len(whole.unfinished()) == 2
    whole.write("closed", FAULT)
    assert open_faults(first) == []
    assert open_faults(whole) == [("00000002", "planned")]


# Signals during cleanup: it is never interrupted


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    """Restore pytest's own signal handlers."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_interrupts_only_after_the_block(number: signal.Signals) -> None:
    noticed, finished = [], []
    signal.signal(number, interrupt_once(lambda: None))
    with pytest.raises(KeyboardInterrupt), uninterrupted(lambda: noticed.append(number)):
        signal.raise_signal(number)
        signal.raise_signal(number)
        finished.append(number)
    assert (noticed, finished) == ([number, number], [number])


def test_handlers_are_restored_without_a_signal_and_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with (
        pytest.raises(ValueError, match="its own"),
        uninterrupted(lambda: pytest.fail("there was no signal")),
    ):
        assert [signal.getsignal(number) for number in SIGNALS] != before
        raise ValueError("its own")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_only_the_first_signal_of_any_kind_interrupts() -> None:
    noticed: list[str] = []
    handler = interrupt_once(lambda: noticed.append("again"))
    for number in SIGNALS:
        signal.signal(number, handler)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
    for number in SIGNALS:
        signal.raise_signal(number)
    assert noticed == ["again"] * 3


# An unanswered probe: the fault is unknown, not gone


Answer = Callable[[], bool]


def silent() -> bool:
    raise MachineError("node-1: no answer")


@dataclass
class Scripted:
    """A fault whose probe gives this answer from some time on."""

    answer: Answer = field(default=lambda: True)
    name: str = "scripted"
    id: str = "0a1b2c3d"
    node: str = "node-1"
    places: tuple[str, ...] = ()
    affected_nodes: tuple[str, ...] = ("node-1",)
    ends_components: bool = False
    self_heal_command: tuple[str, ...] = ()

    def to_json(self) -> Mapping[str, Any]:
        return {"fault": self.name, "id": self.id, "node": self.node}

    def available(self, _machine: object) -> str:
        return ""

    def inject(self, _machine: object) -> None:
        """Affect nothing."""

    def heal(self, _machine: object) -> None:
        """Undo nothing."""

    def is_injected(self, _machine: object) -> bool:
        return self.answer()

    def is_healed(self, _machine: object) -> bool:
        return True


@pytest.fixture
def idle_injector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Injector:
    monkeypatch.setattr(injector, "check_plan", lambda *_arguments: None)
    monkeypatch.setattr(injector, "STILL_IN_TIMEOUT_S", 0.05)
    monkeypatch.setattr(injector, "_PROBE_PERIOD_S", 0.01)
    return Injector(
        machine=lambda _name: cast("Machine", Local(tmp_path)),
        targets=lambda _node, _harms: (),
        record=lambda: cast("Record", None),
        control_planes=frozenset,
        ledger=Ledger("lab", tmp_path),
        deadman=cast("Deadman", SimpleNamespace(arm=lambda _fault, _ttl_s: None)),
    )


ANSWERS = pytest.mark.parametrize(
    ("answer", "step"),
    [(lambda: True, []), (lambda: False, ["unproven"]), (silent, ["unanswered"])],
    ids=["yes", "no", "none"],
)


def note(steps: list[str]) -> Callable[..., None]:
    """Store the steps that a history receives."""
    return lambda _kind, _t, **data: steps.append(data["step"])


def injecting(
    own: Injector, fault: Scripted, append: Callable[..., None] | None = None
) -> AbstractContextManager[object]:
    return own.inject(cast("Fault", fault), Declared(()), append or note([]))


@pytest.mark.parametrize(
    ("fault", "status", "errors"),
    [
        (UnitDown("node-1", unit="x.service"), 1, "Failed to connect to bus: Connection refused"),
        (KubeProxy("node-1"), 124, ""),
        (ReplaceFile("node-1", "/x", "y"), 254, "sh: cannot fork"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_probe_without_an_answer_says_neither_yes_nor_no(fault: Fault, status: int, errors: str) -> None:
    machine = SimpleNamespace(name="node-1", run=lambda *_argv, **_options: CommandResult(status, "", errors))
    with pytest.raises(MachineError):
        fault.is_injected(cast("Machine", machine))


@pytest.mark.parametrize("is_standing", [False, True])
@ANSWERS
def test_only_an_answered_probe_proves_that_a_fault_is_gone(
    idle_injector: Injector, answer: Answer, step: list[str], is_standing: bool
) -> None:
    steps: list[str] = []
    fault, standing = Scripted(), idle_injector.standing(note(steps)) if is_standing else nullcontext()
    with injecting(idle_injector, fault, note([] if is_standing else steps)), standing:
        fault.answer = answer
    if is_standing:
        assert steps == ["injecting", "injected", *step]
    else:
        assert steps == ["planned", "armed", "injecting", "injected", *step, "healing", "healed", "closed"]


def test_injection_and_healing_are_notified_once_they_are_proven(idle_injector: Injector) -> None:
    notified: list[str] = []
    idle_injector.notify = lambda step, _fault: notified.append(step)
    with injecting(idle_injector, Scripted()):
        assert notified == ["injected"]
    assert notified == ["injected", "healed"]


# A fault that its owner aborts


HEALED_TIMEOUT_S = 10.0


@dataclass
class Healed(Scripted):
    """A fault that notes when it is healed; its probe sees it until then."""

    healed: threading.Event = field(default_factory=threading.Event)

    def heal(self, _machine: object) -> None:
        self.healed.set()

    def is_injected(self, _machine: object) -> bool:
        return not self.healed.is_set()


def test_fault_is_healed_at_once_although_its_scenario_does_not_end(idle_injector: Injector) -> None:
    answers, entries, lines = [[], [], ["HTTP 503"]], list[dict[str, object]](), list[str]()
    idle_injector.abort = AbortPoll(lambda: answers.pop(0), 0.01)
    idle_injector.say = lines.append
    fault = Healed()
    with injecting(idle_injector, fault, lambda _kind, _t, **data: entries.append(data)):
        assert fault.healed.wait(HEALED_TIMEOUT_S)
        assert eventually(lambda: lines, HEALED_TIMEOUT_S)
    (entry,) = [entry for entry in entries if entry["step"] == "aborted"]
    assert entry["reason"] == "HTTP 503"
    assert lines == ["aborting scripted on node-1 (0a1b2c3d): HTTP 503"]
    assert [entry["step"] for entry in entries][-3:] == ["healing", "healed", "closed"]
    assert answers == []
    assert idle_injector.quarantined == set()


@dataclass
class Stubborn(Healed):
    """A fault whose machine does not answer the first request to heal it."""

    has_failed: bool = False

    def heal(self, _machine: object) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise MachineError("no answer")
        super().heal(_machine)


def test_abort_heals_until_the_machine_answers_and_renews_no_switch(
    idle_injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "RENEW_PERIOD_S", 0.05)
    monkeypatch.setattr(injector, "_HEAL_PERIOD_S", 0.5)
    answers: list[list[str]] = []
    idle_injector.abort = AbortPoll(lambda: answers.pop(0) if answers else [], 0.01)

    def fail(_line: str) -> None:
        raise BrokenPipeError

    idle_injector.say = fail
    fault = Stubborn()
    armed: list[float] = []
    idle_injector.deadman = cast("Deadman", SimpleNamespace(arm=lambda _fault, ttl_s: armed.append(ttl_s)))
    with injecting(idle_injector, fault):
        answers.append(["HTTP 503"])
        assert eventually(lambda: fault.has_failed, HEALED_TIMEOUT_S)
        armed.clear()
        assert fault.healed.wait(HEALED_TIMEOUT_S)
        assert len(armed) <= 1


def test_abort_of_one_fault_ends_all_that_are_active(idle_injector: Injector) -> None:
    answers: list[list[str]] = []
    idle_injector.abort = AbortPoll(lambda: answers.pop(0) if answers else [], 0.01)
    first, second = Healed(), Healed(id="1b2c3d4e")
    with injecting(idle_injector, first), injecting(idle_injector, second):
        answers.append(["HTTP 503"])
        assert first.healed.wait(HEALED_TIMEOUT_S)
        assert second.healed.wait(HEALED_TIMEOUT_S)


def test_abort_before_a_probe_sees_the_fault_is_no_missing_fault(idle_injector: Injector) -> None:
    fault = Healed()
    idle_injector.abort = AbortPoll(lambda: ["HTTP 503"], 0.01)
    fault.is_injected = lambda _machine: False  # type: ignore[method-assign]
    with pytest.raises(Aborted, match="HTTP 503"), injecting(idle_injector, fault):
        pytest.fail("the fault was aborted")
    assert fault.healed.is_set()


# A fault that only its host can undo, interrupted while it is injected


@dataclass
class Slow(Scripted):
    """A fault whose injection is interrupted; notes the ends of both."""

    ends: list[str] = field(default_factory=list)

    def inject(self, _machine: object) -> None:
        signal.raise_signal(signal.SIGINT)
        self.ends.append("injected")

    def heal(self, _machine: object) -> None:
        self.ends.append("healed")


def test_interrupted_injection_ends_before_it_is_healed(idle_injector: Injector) -> None:
    lines: list[str] = []
    idle_injector.say = lines.append
    fault = Slow()
    with pytest.raises(KeyboardInterrupt), injecting(idle_injector, fault):
        pytest.fail("the run was interrupted")
    assert fault.ends == ["injected", "healed"]
    assert lines == ["injecting scripted on node-1 (0a1b2c3d), please wait; then it is healed"]
