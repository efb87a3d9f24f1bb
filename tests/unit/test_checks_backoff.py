"""Doubling waits: conforming and other histories, and ambiguous ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest

from nodeproof.checks.judge import judge
from nodeproof.checks.moments import cordoned, uncordoned
from nodeproof.checks.repeated import doubled
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext
from nodeproof.sources.audit import audit
from tests.unit.histories import NODE, Story, configuration
from tests.unit.sample_checks import CLAIM, UNKNOWN, assert_verdict, run

SOURCE = audit(verb="create", resource="nodes")
SINCE_T, UNTIL_T, COLLECTED_T = 10.0, 48.0, 60.0
GROWING = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
TRIED = (*GROWING, 7.0, 7.0, 7.0)


def trying(
    waits: Sequence[float] = TRIED,
    *,
    first_t: float = SINCE_T + 0.1,
    collected_t: float = COLLECTED_T,
    unsure: str = "",
) -> Story:
    """Record tries with these waits, and their collection; a node is cordoned from `SINCE_T` to `UNTIL_T`."""
    story = Story()
    for t, on in ((SINCE_T, True), (UNTIL_T, False)):
        story.cordon(t, on=on)
    story.tell("create", *accumulate([first_t, *waits]), by=SOURCE.by)
    story.say(collected_t, "heard", by=SOURCE.by, error_s=0.0, unsure=unsure, node="", boot_id="")
    return story.fence(collected_t + 1)


def doubling(
    at_least: int = 8,
    first_s: float = 0.2,
    most_s: float = 7.0,
    takes_s: float = 1.0,
    event: Moment = SOURCE.request,
) -> Check:
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    return doubled(event, first_s, most_s, takes_s=takes_s, at_least=at_least, **ends)


def test_doubling_waits_up_to_the_maximum_conform() -> None:
    verdict = run(doubling(), trying())
    assert_verdict(verdict, "conforms", "waits of 0.200, 0.400, 0.800, 1.600, 3.200, 6.400, 7.000, 7.000")
    assert verdict.measured == Measured(9.0, "waits")


def test_duration_of_a_try_is_tolerated() -> None:
    assert_verdict(run(doubling(), trying([wait + 0.6 for wait in TRIED[:-1]])), "conforms")


@pytest.mark.parametrize(
    ("waits", "word"),
    [
        ((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0), "wait 3 "),
        ((0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0, 7.0), "wait 4 "),
        ((*GROWING, 12.8), "wait 7 "),
        ((*GROWING[:5], 3.5, 3.5, 3.5), "wait 6 "),
        ((7.0, 7.0, 7.0, 7.0), "wait 1 "),
        ((*GROWING, 7.0, 7.0, 0.0), "wait 9 "),
        ((0.2, 0.4, 0.6, 0.8, 1.0, 1.2), "wait 4 "),
    ],
    ids=["from half", "from double", "to double", "to half", "all the longest", "twice", "by addition"],
)
def test_other_waits_deviate(waits: Sequence[float], word: str) -> None:
    assert_verdict(run(doubling(), trying(waits)), "deviates", word)


def test_tries_that_stop_deviate() -> None:
    assert_verdict(
        run(doubling(), trying(GROWING)), "deviates", "occurred 7 times", "none in the last 25.3 s"
    )
    assert_verdict(run(doubling(), trying(first_t=UNTIL_T + 1)), "deviates", "occurred 0 times")


def test_too_few_tries_that_continue_prove_nothing() -> None:
    assert_verdict(run(doubling(12), trying()), "unproven: gap", "need 13")


def test_incomplete_source_proves_only_its_messages() -> None:
    assert_verdict(run(doubling(), trying(unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(doubling(), trying(collected_t=47.0)), "unproven: gap", "too early")
    assert_verdict(run(doubling(), trying(GROWING, unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(doubling(), trying((7.0, 7.0), unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(doubling(), trying((7.0, 7.0))), "deviates", "wait 1 ")


def test_uncollected_source_or_missing_anchor_proves_nothing() -> None:
    other = doubling(event=audit(verb="delete").request)
    assert_verdict(run(other, trying()), "unproven: gap", "was not read")
    never = doubled(SOURCE.request, 0.2, 7, takes_s=1, at_least=8, after=UNKNOWN, until=uncordoned(NODE))
    assert_verdict(run(never, trying()), "unproven: no-anchor")


def test_gap_at_an_end_proves_nothing() -> None:
    story = Story().cordon(SINCE_T).gap(20.0, 21.0, "nodes").cordon(UNTIL_T, on=False)
    story.tell("create", *accumulate([SINCE_T + 0.1, *TRIED]), by=SOURCE.by)
    story.say(COLLECTED_T, "heard", by=SOURCE.by, error_s=0.0, unsure="", node="", boot_id="")
    assert_verdict(run(doubling(), story.fence(COLLECTED_T + 1)), "unproven: gap", "had a gap")


def test_waits_that_also_fit_half_or_double_prove_nothing() -> None:
    """Too few do not reach the maximum; tries that take longer than that prove nothing."""
    assert_verdict(run(doubling(3), trying()), "unproven: scaled", "half or double")
    assert_verdict(run(doubling(takes_s=7.5), trying()), "unproven: scaled")
    assert_verdict(
        run(doubling(), trying(), WindowContext(configuration(), 6.0)), "unproven: host-too-loaded"
    )


def test_stall_excuses_a_long_wait() -> None:
    waits = (*GROWING[:5], 6.4 + 2.0, 7.0, 7.0)
    story = trying(waits)
    assert judge(CLAIM, doubling(), story.history(), configuration()).label == "deviates"
    for t in (10.0, 30.0):
        story.say(t, "stall", late_s=0.0)
    story.say(20.0, "stall", late_s=1.2)
    assert judge(CLAIM, doubling(), story.history(), configuration()).label == "unproven: host-too-loaded"


@pytest.mark.parametrize(("first_s", "most_s"), [(0.0, 7.0), (7.0, 7.0), (8.0, 7.0)])
def test_constant_waits_are_refused(first_s: float, most_s: float) -> None:
    with pytest.raises(ValueError, match="need 0 < first_s < most_s"):
        doubling(first_s=first_s, most_s=most_s)
