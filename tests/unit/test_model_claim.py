"""Claims, their verdicts, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model.claim import Claim, Constant, includes, page_agreement
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import (
    SKIP_CODES,
    Code,
    Measured,
    Page,
    Verdict,
    conforms,
    deviates,
    unproven,
    worst,
)
from nodeproof.model.window import Window
from tests.unit.sample_checks import GRACE


def claim(page: Mapping[str, bool | str], *constants: Constant, drift: str = "") -> Claim:
    return Claim(
        "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", page, constants, ("source",), drift
    )


@pytest.mark.parametrize(
    ("versions", "version", "holds"),
    [
        (">=1.18", "v1.36.3", True),
        (">=1.18,<1.32", "v1.31.9", True),
        ("<1.32", "v1.32.0", False),
        (">=1.32", "1.32.0", True),
        (">=1.32", "v1.32.0-alpha.1.205+0123abc", True),
        (">=1.33", "v1.33.5-eks-113cf36", True),
        (">=1.33", "v1.33.5-gke.1162000", True),
        (">=1.33", "v1.33.5+k3s1", True),
        ("<1.32", "v1.100.0", False),
    ],
)
def test_version_ranges_are_evaluated(versions: str, version: str, holds: bool) -> None:
    assert includes(versions, version) is holds


@pytest.mark.parametrize("version", ["", "v1", "latest", "v1.36", "1.2.3.4"])
def test_invalid_version_is_a_value_error(version: str) -> None:
    with pytest.raises(ValueError, match="version"):
        includes(">=1.18", version)


def test_constant_depends_on_the_version() -> None:
    assert (GRACE.at("v1.31.9"), GRACE.at("v1.32.0")) == (40.0, 50.0)
    partial = Constant("x", "c", "", "", "s", ((">=1.40", 1.0),), None, "")
    with pytest.raises(KeyError, match="x has no value for"):
        partial.at("v1.36.3")


@pytest.mark.parametrize(
    ("version", "verdict", "agreement", "cluster"),
    [
        ("v1.36.3", conforms(""), "differs", "50 s"),
        ("v1.31.9", conforms(""), "agrees", "40 s"),
        ("v1.31.9", deviates(""), "differs", "40 s"),
        ("v1.31.9", unproven("gap", ""), "agrees", "40 s"),
    ],
)
def test_page_is_compared_with_the_constant_of_the_version(
    version: str, verdict: Verdict, agreement: str, cluster: str
) -> None:
    page = page_agreement(claim({"v1.28": True}, GRACE, drift="known"), version, verdict)
    assert (page.agreement, page.text, page.cluster, page.drift) == (agreement, "40 s", cluster, "known")


def test_page_without_the_claim_is_silent() -> None:
    silent = claim({"v1.18": False, "v1.28": False}, GRACE)
    assert silent.page_versions == ()
    assert page_agreement(silent, "v1.36.3", deviates("")) == Page("silent")


@pytest.mark.parametrize(
    ("statement", "says"), [(True, "It is so."), ("variant: nearly so", "variant: nearly so")]
)
def test_page_without_a_number_follows_the_verdict(statement: bool | str, says: str) -> None:
    documented = claim({"v1.18": False, "v1.28": statement})
    assert documented.page_versions == ("v1.28",)
    assert page_agreement(documented, "v1.36.3", conforms("")) == Page("agrees", says)
    assert page_agreement(documented, "v1.36.3", deviates("")) == Page("differs", says)


def test_moved_statement_keeps_its_former_agreement() -> None:
    moved = claim({"v1.26": "differs: it is otherwise", "v1.28": "moved: elsewhere"})
    assert page_agreement(moved, "v1.36.3", conforms("")) == Page("differs", "differs: it is otherwise")
    newer = claim({"v1.26": False, "v1.28": "moved: elsewhere"})
    assert page_agreement(newer, "v1.36.3", conforms("")) == Page("agrees", "moved: elsewhere")


def test_corrected_claim_reports_how_the_page_differs() -> None:
    corrected = claim({"v1.28": "differs: it is otherwise"})
    assert page_agreement(corrected, "v1.36.3", conforms("")) == Page("differs", "differs: it is otherwise")
    for verdict in (deviates(""), unproven("gap", "")):
        assert page_agreement(corrected, "v1.36.3", verdict).agreement == "unknown"


CODES: Sequence[Code] = [code for code in get_args(Code) if code]
verdicts = st.one_of(
    st.just(conforms("")), st.just(deviates("")), st.sampled_from(CODES).map(lambda code: unproven(code, ""))
)


@given(st.lists(verdicts, min_size=1))
def test_worst_verdict_has_precedence(several: list[Verdict]) -> None:
    verdict = worst(several)
    outcomes = {verdict.outcome for verdict in several}
    assert verdict in several
    if "deviates" in outcomes:
        assert verdict.outcome == "deviates"
    elif any(verdict.outcome == "unproven" and not verdict.is_skip for verdict in several):
        assert verdict.outcome == "unproven"
        assert not verdict.is_skip
    elif "unproven" in outcomes:
        assert verdict.is_skip
    else:
        assert verdict.outcome == "conforms"


@given(st.lists(verdicts, min_size=1), st.randoms())
def test_precedence_does_not_depend_on_order(several: list[Verdict], random: Random) -> None:
    shuffled = list(several)
    random.shuffle(shuffled)
    assert worst(shuffled).rank == worst(several).rank


def test_worst_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        worst([])


@pytest.mark.parametrize("code", CODES)
def test_only_permanent_reasons_are_a_skip(code: Code) -> None:
    assert unproven(code, "").is_skip is (code in SKIP_CODES)
    assert unproven(code, "").label == f"unproven: {code}"


def test_code_belongs_only_to_unproven() -> None:
    with pytest.raises(ValueError, match="unproven"):
        unproven("", "no code")
    with pytest.raises(ValueError, match="conforms"):
        Verdict("conforms", "gap", "")


def test_verdict_as_json() -> None:
    window = Window(1.0, 2.0, 1.5, "period", "a", "b")
    row = deviates("late", window, Measured(2.5, "s"), "node gone").to_json()
    assert row["verdict"] == "deviates"
    assert row["code"] is None
    assert row["measured"] == {"value": 2.5, "unit": "s"}
    assert row["window"]["high_s"] == 2.0
    assert row["last_state"] == "node gone"
    assert conforms("").to_json()["window"] is None


def test_measurement_shows_its_unit() -> None:
    assert str(Measured(1.23456, "s")) == "1.235 s"
    assert str(Measured("none")) == "none"


def test_problem_is_one_line_and_its_detail() -> None:
    assert str(Problem("no lab", "here", "make one")) == "no lab (here); make one"
    assert str(Problem("no lab", "here", "make one", "last words")).endswith("make one\nlast words")
