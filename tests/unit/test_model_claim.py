"""Claims: version ranges, constants, and what the page says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeproof.model.claim import Claim, Constant, includes, page_agreement
from nodeproof.model.verdict import Page, Verdict, conforms, deviates, unproven
from tests.unit.given import GRACE


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
def test_ranges(versions: str, version: str, holds: bool) -> None:
    assert includes(versions, version) is holds


@pytest.mark.parametrize("version", ["", "v1", "latest", "v1.36", "1.2.3.4"])
def test_what_is_no_version_is_a_value_error(version: str) -> None:
    with pytest.raises(ValueError, match="version"):
        includes(">=1.18", version)


def test_a_constant_per_version() -> None:
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
def test_the_page_against_the_constant_of_the_version(
    version: str, verdict: Verdict, agreement: str, cluster: str
) -> None:
    page = page_agreement(claim({"v1.28": True}, GRACE, drift="known"), version, verdict)
    assert (page.agreement, page.says, page.cluster, page.drift) == (agreement, "40 s", cluster, "known")


def test_a_page_that_says_nothing_is_silent() -> None:
    silent = claim({"v1.18": False, "v1.28": False}, GRACE)
    assert silent.page_versions == ()
    assert page_agreement(silent, "v1.36.3", deviates("")) == Page("silent")


@pytest.mark.parametrize(
    ("said", "says"), [(True, "It is so."), ("variant: nearly so", "variant: nearly so")]
)
def test_a_page_without_a_number(said: bool | str, says: str) -> None:
    documented = claim({"v1.18": False, "v1.28": said})
    assert documented.page_versions == ("v1.28",)
    assert page_agreement(documented, "v1.36.3", conforms("")) == Page("agrees", says)
    assert page_agreement(documented, "v1.36.3", deviates("")) == Page("differs", says)


def test_what_has_moved_says_what_it_said_before() -> None:
    moved = claim({"v1.26": "differs: it is otherwise", "v1.28": "moved: elsewhere"})
    assert page_agreement(moved, "v1.36.3", conforms("")) == Page("differs", "differs: it is otherwise")
    newer = claim({"v1.26": False, "v1.28": "moved: elsewhere"})
    assert page_agreement(newer, "v1.36.3", conforms("")) == Page("agrees", "moved: elsewhere")


def test_a_claim_that_is_as_the_code_has_it_says_how_the_page_differs() -> None:
    corrected = claim({"v1.28": "differs: it is otherwise"})
    assert page_agreement(corrected, "v1.36.3", conforms("")) == Page("differs", "differs: it is otherwise")
    for verdict in (deviates(""), unproven("gap", "")):
        assert page_agreement(corrected, "v1.36.3", verdict).agreement == "unknown"
