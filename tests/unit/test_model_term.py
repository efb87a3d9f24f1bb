"""Formulas: one tree for the number and the words."""

from __future__ import annotations

import pytest

from nodeproof.model import window as windows
from nodeproof.model.term import Term

FIGURES = {"G": 50.0, "P": 5.0, "E": 0.1, "slack": 0.31}


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("G", 50.0, "G"),
        ("0", 0.0, "0"),
        ("-slack", -0.31, "-slack"),
        ("G + 2P + slack", 60.31, "G + 2P + slack (50 + 10 + 0.31)"),
        ("G - 1.04P - slack", 44.49, "G - 1.04P - slack (50 - 5.2 - 0.31)"),
        ("max(P, 1/E) + 1", 11.0, "max(P, 1/E) + 1 (10 + 1)"),
        ("min(P, 1/E)", 5.0, "min(P, 1/E)"),
        ("1/2E", 5.0, "1/2E (5)"),
        ("2 * P - (G - P) / 3", -5.0, "2 * P - (G - P) / 3 (10 - 15)"),
        ("1/(P - 5)", float("inf"), "1/(P - 5) (inf)"),
    ],
)
def test_a_formula_is_a_number_and_its_words(text: str, value: float, shown: str) -> None:
    term = Term.of(text)
    assert term.value(FIGURES.__getitem__) == pytest.approx(value)
    assert term.arithmetic(FIGURES.__getitem__) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "G +",
        "G.x",
        "f(P)",
        "max()",
        "G if P else E",
        "G ** P",
        "'a'",
        "True",
        "[1]",
        "G" * 201,
        "1" + "(" * 99,
    ],
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|arithmetic|arguments"):
        Term.of(text)


def test_a_symbol_that_there_is_none_of_is_refused_when_it_is_written() -> None:
    with pytest.raises(KeyError, match="Q"):
        windows.formula("within", "Q", "0", "Q + slack")
    with pytest.raises(ValueError, match="not arithmetic"):
        windows.formula("within", "G", "G.x", "G + slack")


def test_slack_belongs_to_the_end_and_not_to_the_figure() -> None:
    with pytest.raises(ValueError, match="no slack in 'P'"):
        windows.formula("within", "P", "0", "P")
    with pytest.raises(ValueError, match="slack in the claimed value"):
        windows.formula("within", "P + slack", "0", "P + slack")
    assert windows.formula("negative", "P", "0", "P")
