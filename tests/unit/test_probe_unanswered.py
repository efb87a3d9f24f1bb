"""An unanswered probe: the fault is unknown, not gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.replace_file import ReplaceFile
from nodeproof.faults.units import KubeProxy, UnitDown
from nodeproof.machines.machine import CommandResult, Machine, MachineError
from nodeproof.safety import injector
from nodeproof.safety.deadman import Deadman
from nodeproof.safety.guard import Declared, Record
from nodeproof.safety.injector import Injector
from nodeproof.safety.ledger import Ledger
from tests.fakes import Local

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


class NoSwitch:
    """A dead-man's switch that never fires."""

    def arm(self, _fault: object, _ttl_s: float) -> None:
        """Arm nothing."""


@pytest.fixture
def idle_injector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Injector:
    monkeypatch.setattr(injector, "check_plan", lambda *_arguments: None)
    monkeypatch.setattr(injector, "STILL_IN_TIMEOUT_S", 0.05)
    monkeypatch.setattr(injector, "_PROBE_PERIOD_S", 0.01)
    ledger = Ledger("lab", tmp_path)
    record = cast("Record", None)
    return Injector(
        machine=lambda _name: cast("Machine", Local(tmp_path)),
        targets=lambda _node, _harms: (),
        record=lambda: record,
        control_planes=frozenset,
        ledger=ledger,
        deadman=cast("Deadman", NoSwitch()),
    )


ANSWERS = pytest.mark.parametrize(
    ("answer", "step"),
    [(lambda: True, []), (lambda: False, ["unproven"]), (silent, ["unanswered"])],
    ids=["yes", "no", "none"],
)


def note(steps: list[str]) -> Callable[..., None]:
    """Store the steps that a history receives."""
    return lambda _kind, _t, **data: steps.append(data["step"])


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


@ANSWERS
def test_only_an_answered_probe_proves_that_a_fault_is_gone(
    idle_injector: Injector, answer: Answer, step: list[str]
) -> None:
    steps: list[str] = []
    fault = Scripted()
    with idle_injector.inject(cast("Fault", fault), Declared(()), note(steps)):
        fault.answer = answer
    assert steps[:4] == ["planned", "armed", "injecting", "injected"]
    assert steps[4:] == [*step, "healing", "healed", "closed"]


@ANSWERS
def test_only_an_answered_probe_proves_a_standing_fault_gone(
    idle_injector: Injector, answer: Answer, step: list[str]
) -> None:
    steps: list[str] = []
    fault = Scripted()
    with (
        idle_injector.inject(cast("Fault", fault), Declared(()), note([])),
        idle_injector.standing(note(steps)),
    ):
        fault.answer = answer
    assert steps == ["injecting", "injected", *step]
