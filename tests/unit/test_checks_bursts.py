"""Bursts of tries: conforming and other histories, and ambiguous ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodeproof.checks.judge import judge
from nodeproof.checks.moments import cordoned, created, uncordoned
from nodeproof.checks.repeated import in_bursts
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check
from nodeproof.model.window import WindowContext
from nodeproof.sources.audit import audit
from tests.unit.histories import NODE, Story, configuration
from tests.unit.sample_checks import CLAIM, UNKNOWN, assert_verdict, run

SINCE_T, UNTIL_T, COLLECTED_T, STEP_S, PERIOD_S = 10.0, 20.0, 30.0, 0.02, 2.05
PUT, GET = audit(verb="update", resource="leases"), audit(verb="get", resource="leases")
PERIOD = windows.formula("period", "R", "R - slack", "1.04R + 0.5 + slack")
ENDS = {"after": cordoned(NODE), "until": uncordoned(NODE)}
FIVE = ("put",) * 5
TEN = (*FIVE, "get", *FIVE)
BEGIN_AT = (9.5, 11.6, 13.7, 15.8, 17.9, 19.98)
"""The first and the last burst are cut off by an end."""


def trying(
    burst: Sequence[str] = FIVE,
    begin_at: Sequence[float] = BEGIN_AT,
    *,
    odd: Sequence[str] | None = None,
    collected_t: float = COLLECTED_T,
    unsure: str = "",
    also: Sequence[float] = (),
) -> Story:
    """Record bursts of requests, `odd` as the third; a node is cordoned from `SINCE_T` to `UNTIL_T`."""
    story = Story()
    for t, on in ((SINCE_T, True), (UNTIL_T, False)):
        story.cordon(t, on=on)
    for number, begin_t in enumerate(begin_at):
        for place, what in enumerate(odd if odd is not None and number == 2 else burst):
            story.tell(what, begin_t + place * STEP_S, by=(PUT if what == "put" else GET).by)
    story.tell("put", *also, by=PUT.by)
    for source in (PUT, GET):
        story.say(collected_t, "heard", by=source.by, error_s=0.0, unsure=unsure, node="", boot_id="")
    return story.fence(collected_t + 1)


def fives(at_least: int = 3, times: int = 5) -> Check:
    return in_bursts((PUT.request, times), apart=PERIOD, at_least=at_least, **ENDS)


def tens(at_least: int = 3) -> Check:
    parts = ((PUT.request, 5), (GET.request, 1), (PUT.request, 5))
    return in_bursts(*parts, apart=PERIOD, at_least=at_least, **ENDS)


def test_bursts_of_the_expected_size_conform() -> None:
    assert_verdict(run(fives(), trying()), "conforms", "4 bursts of 5 x told(")
    assert_verdict(run(tens(), trying(TEN)), "conforms", "4 bursts of 5 x told(", ", 1 x told(")


@pytest.mark.parametrize("times", [3, 4, 6])
def test_bursts_of_fewer_or_more_deviate(times: int) -> None:
    assert_verdict(
        run(fives(), trying(("put",) * times)), "deviates", f"a burst of {times} x", "expected 5 x"
    )
    assert_verdict(run(fives(), trying(odd=("put",) * times)), "deviates", f"a burst of {times} x")


@pytest.mark.parametrize(
    "odd",
    [
        FIVE * 2,
        (*FIVE, "get", *FIVE[1:]),
        (*FIVE, "get", *FIVE, "put"),
        ("get", *FIVE),
        (*FIVE[1:], "get", *FIVE, "put"),
        (*FIVE, "get", "get", *FIVE),
    ],
    ids=["no look", "fewer after it", "more after it", "none before it", "another order", "two looks"],
)
def test_bursts_with_other_events_deviate(odd: Sequence[str]) -> None:
    assert_verdict(run(tens(), trying(TEN, odd=odd)), "deviates", "a burst of")


@pytest.mark.parametrize(
    ("begin_at", "word"),
    [
        ((11.0, 12.5, 14.6, 16.7, 18.8), "from one burst to the next"),
        ((11.0, 13.05, 15.1, 16.6, 18.65), "from one burst to the next"),
        ((15.0, 17.05, 19.1), "no tries for"),
        ((11.0, 13.05, 15.1), "no tries for"),
        ((11.0, 13.05, 16.1, 18.15), "no tries for"),
        ((), "no tries for"),
    ],
)
def test_bursts_too_close_too_late_or_stopping_deviate(begin_at: Sequence[float], word: str) -> None:
    assert_verdict(run(fives(), trying(begin_at=begin_at)), "deviates", word)


def test_long_silence_deviates_despite_slack() -> None:
    loaded = WindowContext(configuration(), 1.5)
    assert_verdict(run(fives(), trying(begin_at=(17.0,)), loaded), "deviates", "no tries for 7.0 s")


def test_burst_cut_off_by_an_end_is_ignored() -> None:
    """Half of it is before the first moment, or too near to it to tell."""
    for cut_t in (9.94, 10.1):
        begin_at = (cut_t, *(cut_t + number * PERIOD_S for number in range(1, 5)))
        assert_verdict(run(fives(4), trying(begin_at=begin_at)), "conforms", "4 bursts")
        assert_verdict(run(fives(5), trying(begin_at=begin_at)), "unproven: gap", "4 complete bursts")


def test_ambiguous_pause_proves_nothing() -> None:
    """Its two parts are as large as one burst."""
    odd = trying(begin_at=(10.5, 15.7, 17.8), also=(12.6, 12.62, 13.62, 13.64, 13.66))
    assert_verdict(run(fives(), odd), "unproven: host-too-loaded", "are one burst")


def test_bursts_too_large_or_too_frequent_in_any_split_deviate() -> None:
    odd = trying(begin_at=(10.5, 12.6, 13.6, 15.7, 17.8))
    assert_verdict(run(fives(), odd), "deviates", "a burst of 10 x")
    often = trying(begin_at=[9.5 + 1.03 * number for number in range(11)])
    assert_verdict(run(fives(), often), "deviates", "a burst of")


def test_incomplete_source_proves_only_its_messages() -> None:
    assert_verdict(run(fives(), trying(unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(collected_t=19.0)), "unproven: gap", "too early")
    assert_verdict(run(fives(), trying(begin_at=(), unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(FIVE[1:], unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(FIVE[1:])), "deviates", "a burst of 4 x")


def test_uncollected_source_or_missing_anchor_proves_nothing() -> None:
    other = audit(verb="delete").request
    unheard = in_bursts((PUT.request, 5), (other, 1), apart=PERIOD, at_least=3, **ENDS)
    assert_verdict(run(unheard, trying(begin_at=())), "unproven: gap", "was not read")
    never = in_bursts((PUT.request, 5), apart=PERIOD, at_least=3, after=UNKNOWN, until=uncordoned(NODE))
    assert_verdict(run(never, trying()), "unproven: no-anchor")


def test_gap_at_an_end_proves_nothing() -> None:
    story = Story().cordon(SINCE_T).gap(12.0, 13.0, "nodes").cordon(UNTIL_T, on=False)
    assert_verdict(run(fives(), story.fence(COLLECTED_T)), "unproven: gap", "had a gap")


def test_window_that_also_fits_half_or_double_proves_nothing() -> None:
    assert_verdict(run(fives(), trying(), WindowContext(configuration(), 1.5)), "unproven: host-too-loaded")
    wide = windows.formula("period", "R", "R - slack", "3R + slack")
    assert_verdict(
        run(in_bursts((PUT.request, 5), apart=wide, at_least=3, **ENDS), trying()), "unproven: scaled"
    )


def test_stall_inside_a_burst_excuses_its_two_halves() -> None:
    story = trying(begin_at=(10.5, 12.6, 17.9), also=(14.4, 14.42, 15.82, 15.84, 15.86))
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "deviates"
    story.say(15.0, "stall", late_s=0.5)
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "unproven: host-too-loaded"


def test_bursts_of_an_unwatched_resource_are_refused() -> None:
    story = Story(resources=("nodes", "pods", "leases"))
    with pytest.raises(LookupError, match="not recorded: events"):
        run(
            in_bursts((created("events", "a"), 5), apart=PERIOD, at_least=3, **ENDS), story.fence(COLLECTED_T)
        )


@pytest.mark.parametrize("parts", [(), ((PUT.request, 0),)])
def test_empty_burst_is_refused(parts: Sequence[tuple[object, int]]) -> None:
    with pytest.raises(ValueError, match="each burst needs at least one event"):
        in_bursts(*parts, apart=PERIOD, at_least=1, **ENDS)  # type: ignore[arg-type]
