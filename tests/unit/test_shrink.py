"""`nodeproof shrink`: what it reads of a run, what it refuses, and the scenario that it writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeproof.model.history import Entry, History
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import Schedule, Step
from nodeproof.model.shrinking import Trial
from nodeproof.model.verdict import Outcome
from nodeproof.session.shrink import Deviation, guesses, read_deviation, read_outcome, repeat, scenario_text
from tests.unit.synthetic_runs import CONFORMS, CUT, DEVIATES, TAINT, tell

STEPS = (
    Step("partition", 0, duration_s=9.0),
    Step("freeze", 1, "injected", 0, 1.0, 5.0),
    Step("power_off", "kube-scheduler", "injected", 1, 1.0, 2.0),
    Step("partition", 0, "healed", 2, 1.0, 2.0),
)
SCHEDULE = Schedule(3, STEPS)


def injected(t: float, fault: str, node: str) -> Entry:
    return Entry(t, "fault", {"step": "injected", "node": node, "fault": {"fault": fault, "node": node}})


HISTORY = History.of(
    [
        Entry(100.0, "begun", {}),
        injected(101.0, "kubelet-settings", "node-1"),
        injected(102.0, "partition", "node-1"),
        injected(103.0, "freeze", "node-2"),
        injected(104.0, "power-off", "kube-scheduler"),
        injected(120.0, "partition", "node-1"),
    ]
)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "10.0 s after the recording began, node-2 became Unknown",
            ([1], [0, 1, 2], [1, 2], [0, 1, 2]),
        ),
        (
            "30.0 s after the recording began, pod a on node-1 was evicted",
            ([0, 3], [1, 2, 3], [0, 2, 3], [0, 1, 2, 3]),
        ),
        ("a DaemonSet had 5 of 6 pods", ([], [1, 2, 3], [2], [0, 1, 2, 3])),
    ],
)
def test_last_steps_on_the_nodes_of_the_deviation_are_tried_first(
    reason: str, expected: tuple[list[int], ...]
) -> None:
    deviation = Deviation("storm.recovers", reason, SCHEDULE, HISTORY, 12.0, 60.0)
    assert guesses(deviation) == expected


def test_run_without_a_storm_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    with pytest.raises(Problem, match="the run had no storm"):
        read_deviation(tmp_path)


def test_run_that_was_not_judged_is_unproven(tmp_path: Path) -> None:
    assert read_outcome(tmp_path, "storm.recovers") == "unproven"


def test_scenario_has_the_schedule_and_needs_no_option() -> None:
    tree = ast.parse(scenario_text(SCHEDULE))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [argument.arg for argument in function.args.args] == ["lab", "claim"]
    (constant,) = [node for node in tree.body if isinstance(node, ast.Assign)]
    names: dict[str, Any] = {"Schedule": Schedule, "Step": Step}
    assert eval(ast.unparse(constant.value), names) == SCHEDULE  # noqa: S307
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert "SCHEDULE" in used
    assert "schedule" not in used


def test_run_whose_storm_conforms_is_refused(tmp_path: Path) -> None:
    run = tell(tmp_path, [(CUT, TAINT, CONFORMS)])
    (next((run / "scenarios").iterdir()) / "schedule.json").write_text("{}")
    with pytest.raises(Problem, match="no invariant deviated"):
        read_deviation(run)


def test_outcome_is_that_of_the_invariant(tmp_path: Path) -> None:
    assert read_outcome(tell(tmp_path, [(CUT, TAINT, DEVIATES)]), TAINT) == "deviates"


def test_repetitions_that_prove_nothing_do_not_count() -> None:
    outcomes: Iterator[Outcome] = iter(("deviates", "unproven", "conforms", "deviates", "conforms"))
    assert repeat(STEPS, lambda _steps: Trial(next(outcomes), 1.0)) == "2 of 4 storms"
