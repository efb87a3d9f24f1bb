"""What a run does about other labs never keeps it from its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.labs.client import healing, registry
from nodeproof.labs.client.leases import InUse
from nodeproof.model.problem import Problem
from nodeproof.safety.ledger import Ledger

MINE, OTHER = "p-000001", "p-000002"
FAULT = {"fault": "partition", "id": "cut", "node": "node-1"}
GONE = FileNotFoundError(2, "No such file or directory", "in-use")
REFUSED = Problem("not proven healed: partition on node-1 (cut)", "lab p-000002", "run `nodeproof down`")


@pytest.fixture(autouse=True)
def _left_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for lab in (MINE, OTHER):
        Ledger(lab).write("injected", FAULT)


def told(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, still_runs: bool = True
) -> tuple[list[str], list[str]]:
    """The labs that were healed, or tried, and what was reported."""
    tried: list[str] = []
    reported: list[str] = []

    def heal(name: str) -> None:
        tried.append(name)
        if not still_runs:
            monkeypatch.setattr(registry, "running", lambda: [MINE])
        if error is not None:
            raise error

    monkeypatch.setattr(healing, "heal", heal)
    monkeypatch.setattr(registry, "running", lambda: [MINE, OTHER])
    healing.heal_abandoned(MINE, reported.append)
    return tried, reported


def test_what_was_left_in_another_lab_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, None) == ([OTHER], [f"lab {OTHER}: healed the faults of an earlier run"])


def test_what_cannot_be_healed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, REFUSED) == ([OTHER], [f"lab {OTHER} is not healed: {REFUSED}"])


def test_a_lab_that_goes_meanwhile_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, REFUSED, still_runs=False) == ([OTHER], [])


def test_a_lab_that_somebody_uses_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, InUse("process 1 is using it", OTHER, "wait for it")) == ([OTHER], [])


def test_a_lab_in_which_nothing_was_left_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(OTHER).write("closed", FAULT)
    assert told(monkeypatch, None) == ([], [])


def test_a_lab_whose_folder_goes_while_it_is_healed_is_a_problem_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ready:
        def status(self) -> dict[str, str]:
            return {"phase": "ready"}

    def gone(_name: str) -> None:
        raise GONE

    monkeypatch.setattr(registry, "client", lambda _name: Ready())
    monkeypatch.setattr(registry, "attach", gone)
    with pytest.raises(Problem, match=f"No such file or directory.*lab {OTHER}"):
        healing.heal(OTHER)
