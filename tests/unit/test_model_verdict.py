"""Verdicts: their codes, labels and precedence."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model.problem import Problem
from nodeproof.model.verdict import SKIP_CODES, Code, Measured, Verdict, conforms, deviates, unproven, worst
from nodeproof.model.window import Window

CODES: tuple[Code, ...] = (
    "not-applicable",
    "lab-lacks",
    "scaled",
    "not-injected",
    "no-anchor",
    "gap",
    "component-died",
    "host-too-loaded",
    "check-failed",
)
verdicts = st.one_of(
    st.just(conforms("")), st.just(deviates("")), st.sampled_from(CODES).map(lambda code: unproven(code, ""))
)


@given(st.lists(verdicts, min_size=1))
def test_precedence(several: list[Verdict]) -> None:
    found = worst(several)
    outcomes = {verdict.outcome for verdict in several}
    assert found in several
    if "deviates" in outcomes:
        assert found.outcome == "deviates"
    elif any(verdict.outcome == "unproven" and not verdict.is_skip for verdict in several):
        assert found.outcome == "unproven"
        assert not found.is_skip
    elif "unproven" in outcomes:
        assert found.is_skip
    else:
        assert found.outcome == "conforms"


@given(st.lists(verdicts, min_size=1), st.randoms())
def test_precedence_does_not_depend_on_order(several: list[Verdict], random: Random) -> None:
    shuffled = list(several)
    random.shuffle(shuffled)
    assert worst(shuffled).rank == worst(several).rank


def test_there_is_no_worst_of_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        worst([])


@pytest.mark.parametrize("code", CODES)
def test_only_what_no_run_can_change_is_a_skip(code: Code) -> None:
    assert unproven(code, "").is_skip is (code in SKIP_CODES)
    assert unproven(code, "").label == f"unproven: {code}"


def test_a_code_belongs_to_unproven_and_to_nothing_else() -> None:
    with pytest.raises(ValueError, match="unproven"):
        unproven("", "no code")
    with pytest.raises(ValueError, match="conforms"):
        Verdict("conforms", "gap", "")


def test_as_json() -> None:
    window = Window(1.0, 2.0, 1.5, "period", "a", "b")
    row = deviates("late", window, Measured(2.5, "s"), "node gone").to_json()
    assert row["verdict"] == "deviates"
    assert row["code"] is None
    assert row["measured"] == {"value": 2.5, "unit": "s"}
    assert row["window"]["high_s"] == 2.0
    assert row["last_state"] == "node gone"
    assert conforms("").to_json()["window"] is None


def test_measured_shows_its_unit() -> None:
    assert str(Measured(1.23456, "s")) == "1.235 s"
    assert str(Measured("none")) == "none"


def test_a_problem_is_one_line_and_its_detail() -> None:
    assert str(Problem("no lab", "here", "make one")) == "no lab (here); make one"
    assert str(Problem("no lab", "here", "make one", "last words")).endswith("make one\nlast words")
