"""What a probe that is not answered says of a fault: that nobody knows, and not that it is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof.faults import Fault
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.safety import injector
from nodeproof.safety.deadman import Deadman
from nodeproof.safety.guard import Declared, Record
from nodeproof.safety.injector import Injector
from nodeproof.safety.ledger import Ledger
from tests.local import Local

Answer = Callable[[], bool]


def silent() -> bool:
    raise MachineError("node-1: no answer")


@dataclass
class Scripted:
    """A fault whose probe answers so, from some time on."""

    answer: Answer = field(default=lambda: True)
    id: str = "0a1b2c3d"
    node: str = "node-1"
    places: tuple[str, ...] = ()
    harms: tuple[str, ...] = ("node-1",)
    ends_components: bool = False

    def to_json(self) -> Mapping[str, Any]:
        return {"fault": "scripted", "id": self.id, "node": self.node}

    def available(self, _machine: object) -> str:
        return ""

    def inject(self, _machine: object) -> None:
        """Nothing is harmed."""

    def heal(self, _machine: object) -> None:
        """Nothing was."""

    def is_injected(self, _machine: object) -> bool:
        return self.answer()

    def is_healed(self, _machine: object) -> bool:
        return True


class NoSwitch:
    """A dead-man's switch that fires never."""

    def arm(self, _fault: object, _ttl_s: float) -> None:
        """Nothing is armed."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Injector:
    monkeypatch.setattr(injector, "check_plan", lambda *_told: None)
    monkeypatch.setattr(injector, "STILL_IN_LIMIT_S", 0.05)
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
    """Keep the steps that a history is told."""
    return lambda _kind, _t, **data: steps.append(data["step"])


@ANSWERS
def test_only_a_probe_that_is_answered_says_that_a_fault_is_gone(
    made: Injector, answer: Answer, step: list[str]
) -> None:
    steps: list[str] = []
    fault = Scripted()
    with made.inject(cast("Fault", fault), Declared(()), note(steps)):
        fault.answer = answer
    assert steps[:4] == ["planned", "armed", "injecting", "injected"]
    assert steps[4:] == [*step, "healing", "healed", "closed"]


@ANSWERS
def test_of_what_stands_likewise(made: Injector, answer: Answer, step: list[str]) -> None:
    steps: list[str] = []
    fault = Scripted()
    with made.inject(cast("Fault", fault), Declared(()), note([])), made.standing(note(steps)):
        fault.answer = answer
    assert steps == ["injecting", "injected", *step]
