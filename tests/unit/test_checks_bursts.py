"""Bursts of tries: a history that has them as they are told, others, and what leaves it open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodeproof.checks.bursts import in_bursts
from nodeproof.checks.checks import describe
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import cordoned, made, uncordoned
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check
from nodeproof.model.window import Ground
from nodeproof.sources.audit import audit
from tests.unit.given import CLAIM, UNKNOWN, assert_verdict, run
from tests.unit.histories import NODE, Story, configuration

SINCE_T, UNTIL_T, HEARD_T, STEP_S, EACH_S = 10.0, 20.0, 30.0, 0.02, 2.05
PUT, GET = audit(verb="update", resource="leases"), audit(verb="get", resource="leases")
EACH = windows.formula("period", "R", "R - slack", "1.04R + 0.5 + slack")
FIVE = ("put",) * 5
TEN = (*FIVE, "get", *FIVE)
BEGIN_AT = (9.5, 11.6, 13.7, 15.8, 17.9, 19.98)
"""The first and the last are cut by an end."""


def trying(
    burst: Sequence[str] = FIVE,
    begin_at: Sequence[float] = BEGIN_AT,
    *,
    odd: Sequence[str] | None = None,
    heard_t: float = HEARD_T,
    unsure: str = "",
    also: Sequence[float] = (),
) -> Story:
    """Bursts of such requests, `odd` is the third; a node is cordoned from `SINCE_T` to `UNTIL_T`."""
    story = Story()
    for t, on in ((SINCE_T, True), (UNTIL_T, False)):
        story.cordon(t, on=on)
    for number, begin_t in enumerate(begin_at):
        for place, what in enumerate(odd if odd is not None and number == 2 else burst):
            story.tell(what, begin_t + place * STEP_S, by=(PUT if what == "put" else GET).by)
    story.tell("put", *also, by=PUT.by)
    for source in (PUT, GET):
        story.say(heard_t, "heard", by=source.by, error_s=0.0, unsure=unsure, node="", boot_id="")
    return story.fence(heard_t + 1)


def fives(at_least: int = 3, times: int = 5) -> Check:
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    return in_bursts((PUT.request, times), apart=EACH, at_least=at_least, **ends)


def tens(at_least: int = 3) -> Check:
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    parts = ((PUT.request, 5), (GET.request, 1), (PUT.request, 5))
    return in_bursts(*parts, apart=EACH, at_least=at_least, **ends)


def test_bursts_of_as_many_as_told_conform() -> None:
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
def test_bursts_of_other_parts_deviate(odd: Sequence[str]) -> None:
    assert_verdict(run(tens(), trying(TEN, odd=odd)), "deviates", "a burst of")


@pytest.mark.parametrize("begin_at", [(11.0, 12.5, 14.6, 16.7, 18.8), (11.0, 13.05, 15.1, 16.6, 18.65)])
def test_bursts_too_soon_after_one_another_deviate(begin_at: Sequence[float]) -> None:
    assert_verdict(run(fives(), trying(begin_at=begin_at)), "deviates", "from one burst to the next")


@pytest.mark.parametrize(
    "begin_at", [(15.0, 17.05, 19.1), (11.0, 13.05, 15.1), (11.0, 13.05, 16.1, 18.15), ()]
)
def test_tries_that_begin_late_or_cease_deviate(begin_at: Sequence[float]) -> None:
    assert_verdict(run(fives(), trying(begin_at=begin_at)), "deviates", "no tries for")


def test_a_long_silence_deviates_however_much_slack_there_is() -> None:
    loaded = Ground(configuration(), 1.5)
    assert_verdict(run(fives(), trying(begin_at=(17.0,)), loaded), "deviates", "no tries for 7.0 s")


def test_what_an_end_cuts_is_no_whole_burst() -> None:
    """Half of it lies before the first moment, or so near to it that nobody can tell."""
    for cut_t in (9.94, 10.1):
        begin_at = (cut_t, *(cut_t + number * EACH_S for number in range(1, 5)))
        assert_verdict(run(fives(4), trying(begin_at=begin_at)), "conforms", "4 bursts")
        assert_verdict(run(fives(5), trying(begin_at=begin_at)), "unproven: gap", "4 complete bursts")


def test_a_pause_that_may_part_bursts_or_not_proves_nothing() -> None:
    """Its two parts are as many as one burst has."""
    odd = trying(begin_at=(10.5, 15.7, 17.8), also=(12.6, 12.62, 13.62, 13.64, 13.66))
    assert_verdict(run(fives(), odd), "unproven: host-too-loaded", "are one burst")


def test_bursts_that_are_too_many_or_too_near_however_they_are_parted_deviate() -> None:
    odd = trying(begin_at=(10.5, 12.6, 13.6, 15.7, 17.8))
    assert_verdict(run(fives(), odd), "deviates", "a burst of 10 x")
    often = trying(begin_at=[9.5 + 1.03 * number for number in range(11)])
    assert_verdict(run(fives(), often), "deviates", "a burst of")


def test_a_source_that_does_not_vouch_proves_what_it_told_only() -> None:
    assert_verdict(run(fives(), trying(unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(heard_t=19.0)), "unproven: gap", "too early")
    assert_verdict(run(fives(), trying(begin_at=(), unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(FIVE[1:], unsure="a line was torn")), "unproven: gap", "torn")
    assert_verdict(run(fives(), trying(FIVE[1:])), "deviates", "a burst of 4 x")


def test_what_was_not_heard_or_did_not_begin_proves_nothing() -> None:
    other = audit(verb="delete").request
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    unheard = in_bursts((PUT.request, 5), (other, 1), apart=EACH, at_least=3, **ends)
    assert_verdict(run(unheard, trying(begin_at=())), "unproven: gap", "was not read")
    never = in_bursts((PUT.request, 5), apart=EACH, at_least=3, after=UNKNOWN, until=uncordoned(NODE))
    assert_verdict(run(never, trying()), "unproven: no-anchor")


def test_a_blind_watch_of_an_end_proves_nothing() -> None:
    story = Story()
    story.cordon(SINCE_T)
    story.gap(12.0, 13.0, "nodes")
    story.cordon(UNTIL_T, on=False)
    assert_verdict(run(fives(), story.fence(HEARD_T)), "unproven: gap", "had a gap")


def test_a_window_that_half_or_double_would_satisfy_too_proves_nothing() -> None:
    assert_verdict(run(fives(), trying(), Ground(configuration(), 1.5)), "unproven: host-too-loaded")
    wide = windows.formula("period", "R", "R - slack", "3R + slack")
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    assert_verdict(
        run(in_bursts((PUT.request, 5), apart=wide, at_least=3, **ends), trying()), "unproven: scaled"
    )


def test_a_stall_inside_a_burst_excuses_its_two_halves() -> None:
    story = trying(begin_at=(10.5, 12.6, 17.9), also=(14.4, 14.42, 15.82, 15.84, 15.86))
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "deviates"
    story.say(15.0, "stall", late_s=0.5)
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "unproven: host-too-loaded"


def test_a_resource_that_nobody_watched_makes_no_bursts() -> None:
    story = Story(resources=("nodes", "pods", "leases"))
    ends = {"after": cordoned(NODE), "until": uncordoned(NODE)}
    with pytest.raises(LookupError, match="not recorded: events"):
        run(in_bursts((made("events", "a"), 5), apart=EACH, at_least=3, **ends), story.fence(HEARD_T))


def test_a_check_is_the_same_when_it_is_read_again() -> None:
    check = tens()
    assert_verdict(run(Check.from_json(check.to_json()), trying(TEN)), "conforms")
    assert describe(check).startswith("bursts of told(")
    assert describe(check).count("told(") == 2


@pytest.mark.parametrize("each", [(), ((PUT.request, 0),)])
def test_a_burst_of_nothing_is_refused(each: Sequence[tuple[object, int]]) -> None:
    with pytest.raises(ValueError, match="a burst of"):
        in_bursts(*each, apart=EACH, at_least=1, after=cordoned(NODE), until=uncordoned(NODE))  # type: ignore[arg-type]
