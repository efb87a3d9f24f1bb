"""Checks of probe pods and observations: what conforms, what deviates, and what proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodeproof.checks import checks, moments, observations, repeated, witnessed
from nodeproof.checks.checks import run_check
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.pod_log import SIGTERM, STARTED
from nodeproof.model.slack import slack_s
from nodeproof.model.window import WindowContext
from tests.unit.histories import NAMESPACE, NODE, POD, Story, configuration

CLAIM = Claim("a.b", "a", "s", "behaviour", "kubelet", ">=1.18", {"v1.28": True}, (), ("s",))
BEGAN, HEALING = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
TERM, END = witnessed.sigterm(POD), witnessed.last_sign(POD)
CUT_T, HEALING_T = 10.0, 40.0
LINE = "shutdown kubelet delay"
Tell = Callable[[Story], object]


def story(*telling: Tell) -> Story:
    """Record a fault from `CUT_T` to `HEALING_T`, and further entries."""
    recording = Story().fault(CUT_T, "planned")
    recording.say(CUT_T, "fault", id="cut", fault={}, node=NODE, step="injected")
    recording.say(HEALING_T, "fault", id="cut", fault={}, node=NODE, step="healing")
    for tell in telling:
        tell(recording)
    recording.fence(60.0)
    return recording


def label(check: Check, *telling: Tell) -> str:
    history = story(*telling).history()
    context = WindowContext(configuration(), slack_s(history, configuration()))
    return run_check(Check.from_json(check.to_json()), history, context, CLAIM).label


def beats(since_t: float, until_t: float) -> Tell:
    return lambda story: story.beats(since_t, until_t)


def word(what: str, t: float) -> Tell:
    return lambda story: story.tell(what, t)


def collected(t: float) -> Tell:
    return lambda story: story.hear(t)


LIVES = observations.stays_alive(POD, BEGAN, HEALING)


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ((beats(5, 45), collected(50)), "conforms"),
        ((beats(5, 45),), "unproven: gap"),
        ((beats(5, 38), collected(38)), "unproven: gap"),
        ((beats(5, 20), collected(50)), "deviates"),
        ((beats(5, 20), beats(26, 45), collected(50)), "deviates"),
        ((beats(5, 20), beats(24, 45), collected(50)), "conforms"),
        ((collected(50),), "deviates"),
        ((beats(5, 45), word(STARTED, 20), collected(50)), "deviates"),
        ((beats(5, 45), word(STARTED, 5), collected(50)), "conforms"),
    ],
)
def test_probe_pod_stays_alive(telling: tuple[Tell, ...], expected: str) -> None:
    assert label(LIVES, *telling) == expected


def test_lifetime_over_too_short_a_time_is_unproven() -> None:
    soon = moments.fault_step("cut", "soon")
    step: Tell = lambda story: story.say(12.0, "fault", id="cut", fault={}, node=NODE, step="soon")  # noqa: E731
    assert (
        label(observations.stays_alive(POD, BEGAN, soon), beats(5, 45), collected(50), step)
        == "unproven: scaled"
    )


@pytest.mark.parametrize(
    "missing", [(BEGAN, moments.fault_step("x", "y")), (moments.fault_step("x", "y"), HEALING)]
)
def test_lifetime_without_its_moments_is_unproven(missing: tuple[Moment, Moment]) -> None:
    assert (
        label(observations.stays_alive(POD, *missing), beats(5, 45), collected(50))
        == "unproven: not-injected"
    )


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ((word(SIGTERM, 41), collected(50)), "conforms"),
        ((word(SIGTERM, 38), collected(50)), "deviates"),
        ((word(SIGTERM, 48), collected(50)), "deviates"),
        ((collected(50),), "deviates"),
        ((), "unproven: gap"),
        ((collected(42),), "unproven: gap"),
    ],
)
def test_sigterm_of_a_probe_pod_is_judged(telling: tuple[Tell, ...], expected: str) -> None:
    assert label(TERM.after(HEALING, windows.up_to(5)), *telling) == expected


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ((beats(5, 20), collected(50)), "conforms"),
        ((beats(5, 20), word(SIGTERM, 19), collected(50)), "deviates"),
        # A pod that does not run gets no signal.
        ((collected(50),), "unproven: gap"),
        ((beats(15, 45), collected(50)), "unproven: gap"),
        ((beats(1, 4), collected(50)), "unproven: gap"),
        ((beats(5, 8), word("exits", 9), collected(50)), "unproven: gap"),
    ],
)
def test_absence_of_a_sigterm_requires_a_running_probe_pod(telling: tuple[Tell, ...], expected: str) -> None:
    for check in (
        TERM.never_after(BEGAN, windows.absence(20)),
        repeated.counted(TERM, 0, 0, after=BEGAN, until=HEALING),
    ):
        assert label(check, *telling) == expected


@pytest.mark.parametrize(
    ("end_t", "expected"),
    [(13.0, "deviates"), (19.0, "deviates"), (20.1, "conforms"), (24.0, "conforms"), (26.0, "deviates")],
)
def test_grace_period_is_judged(end_t: float, expected: str) -> None:
    check = END.after(TERM, windows.grace_period(10))
    assert label(check, word(SIGTERM, 10), word("beat", end_t), collected(50)) == expected


@pytest.mark.parametrize(
    ("term_t", "expected"), [(19.9, "deviates"), (20.0, "conforms"), (24.0, "conforms"), (27.0, "deviates")]
)
def test_order_of_two_probe_pods_is_judged(term_t: float, expected: str) -> None:
    def other(story: Story) -> None:
        story.tell("beat", 20.0, by="other")
        story.hear(50.0, by="other")

    check = TERM.after(witnessed.last_sign("other"), windows.afterwards(5))
    assert label(check, other, word(SIGTERM, term_t), collected(50)) == expected


def test_uncollected_anchor_proves_nothing() -> None:
    check = END.after(TERM, windows.grace_period(10))
    assert label(check) == "unproven: gap"
    assert label(check, beats(5, 45), collected(50)) == "unproven: no-anchor"


def test_short_recording_does_not_prove_that_a_machine_stays_up() -> None:
    check = witnessed.machine_ended(NODE).after(HEALING, windows.up_to(30))
    assert label(check) == "unproven: gap"
    assert label(witnessed.machine_ended(NODE).after(HEALING, windows.up_to(5))) == "deviates"


def test_clock_error_of_a_node_is_part_of_the_slack() -> None:
    quiet, exact, wrong = story(), story(collected(50)), story(lambda story: story.hear(50.0, error_s=0.5))
    slacks = [slack_s(story.history(), configuration()) for story in (quiet, exact, wrong)]
    assert slacks == pytest.approx([slacks[0], slacks[0] + 0.02, slacks[0] + 0.5])


def look(t: float, value: str) -> Tell:
    """Record one observation."""
    return lambda story: story.look(t, value, id=f"look-{t:g}")


def looks_on(since_t: float, until_t: float, value: str, period_s: float = 0.5) -> Tell:
    """Record periodic observations."""

    def tell(story: Story) -> None:
        for number in range(int((until_t - since_t) / period_s) + 1):
            story.look(since_t + number * period_s, value)

    return tell


def unanswered(t: float) -> Tell:
    return lambda story: story.say(
        t, "observed", what="locks", subject=NODE, value=None, error="HTTP 500", asked_t=t - 0.1
    )


LISTED = observations.listed("locks", NODE, LINE, BEGAN, HEALING)
NOT_LISTED = observations.not_listed("locks", NODE, LINE, BEGAN)
FEW = observations.amounts_to("locks", NODE, 1, 5, BEGAN, HEALING)


@pytest.mark.parametrize(
    ("check", "telling", "expected"),
    [
        (LISTED, (look(20, f"sleep x\n{LINE}"),), "conforms"),
        (LISTED, (look(20, "sleep x"),), "deviates"),
        (LISTED, (look(20, ""),), "deviates"),
        (LISTED, (look(20, f"{LINE} block"),), "deviates"),
        (LISTED, (look(20, LINE), look(30, "")), "deviates"),
        (LISTED, (look(5, LINE), look(45, LINE)), "unproven: gap"),
        (LISTED, (look(10.02, LINE),), "unproven: gap"),
        (LISTED, (), "unproven: gap"),
        (NOT_LISTED, (look(5, "sleep x"), look(20, LINE)), "conforms"),
        (NOT_LISTED, (look(5, LINE),), "deviates"),
        (NOT_LISTED, (look(20, ""),), "unproven: gap"),
        (FEW, (look(20, "1"), look(21, "5")), "conforms"),
        (FEW, (look(20, "0"),), "deviates"),
        (FEW, (look(20, "6"),), "deviates"),
        (FEW, (look(20, "max"),), "deviates"),
        (FEW, (look(20, ""),), "deviates"),
        (FEW, (), "unproven: gap"),
    ],
)
def test_observations_are_judged(check: Check, telling: tuple[Tell, ...], expected: str) -> None:
    assert label(check, *telling) == expected


SHOWN = observations.shown_throughout("locks", NODE, LINE, BEGAN, HEALING)
NEVER = observations.not_listed("locks", NODE, "Unknown", HEALING)


@pytest.mark.parametrize(
    "check", [LISTED, NEVER, SHOWN, observations.amounts_to("locks", NODE, 7, 7, BEGAN, HEALING)]
)
def test_repeated_observations_must_reach_both_ends(check: Check) -> None:
    value = "7" if check.name == "amounts-to" else LINE
    all_along = looks_on(2.0, 45.0, value)
    assert label(check, all_along) == "conforms"
    assert label(check, looks_on(3.0, 3.0, value)) == "unproven: gap"
    assert label(check, looks_on(10.3, 10.3, value)) == "unproven: gap"
    assert label(check, looks_on(30.0, 45.0, value)) == "unproven: gap"
    assert label(check, slow_look(10.1, 39.5, value)) == "unproven: gap"
    assert label(check, looks_on(2.0, 20.0, value)) == "unproven: gap"
    assert label(check, looks_on(2.0, 15.0, value), looks_on(36.0, 45.0, value)) == "unproven: gap"
    assert label(check, all_along, unanswered(20.1)) == "unproven: gap"
    assert label(check, all_along, unanswered(41.0)) == "conforms"
    assert label(check, looks_on(2.0, 20.0, value), unanswered(20.1), word_of(21.0)) == "deviates"


@pytest.mark.parametrize("check", [LISTED, NEVER])
@pytest.mark.parametrize("times", [(39.5,), (39.0, 39.5), (10.3, 10.8)])
def test_few_repeated_observations_at_one_end_prove_nothing(check: Check, times: tuple[float, ...]) -> None:
    looks = [looks_on(t, t, LINE) for t in times]
    assert label(check, *looks) == "unproven: gap"


def slow_look(asked_t: float, t: float, value: str) -> Tell:
    """Record one periodic observation whose request took long."""
    return lambda story: story.say(t, "observed", what="locks", subject=NODE, value=value, asked_t=asked_t)


def word_of(t: float) -> Tell:
    """Record another observation."""
    return lambda story: story.look(t, "Unknown")


REMOVED = moments.pod_removed(NAMESPACE, POD)
UP_TO_REMOVAL = observations.shown_throughout("locks", NODE, LINE, BEGAN, REMOVED)
NOT_BEFORE_REMOVAL = observations.not_listed("locks", NODE, "gone", REMOVED)


def removal(story: Story) -> None:
    """Remove a pod at 30 s, as its watch reports."""
    story.pod(1.0)
    story.remove(30.0, "pods", NAMESPACE, POD)


@pytest.mark.parametrize("check", [UP_TO_REMOVAL, NOT_BEFORE_REMOVAL])
def test_observation_near_a_watched_end_may_lie_beyond_it(check: Check) -> None:
    def removed(t: float) -> Tell:
        return lambda story: story.look(t, "gone")

    tells = (removal, looks_on(2.0, 29.5, LINE))
    assert label(check, *tells, removed(29.995)) == "conforms"
    assert label(check, *tells, removed(29.6)) == "deviates"


def test_observation_near_our_own_end_is_inside() -> None:
    assert label(SHOWN, looks_on(10.5, 39.5, LINE), lambda story: story.look(39.995, "gone")) == "deviates"


def test_start_after_the_end_is_no_restart() -> None:
    assert label(LIVES, beats(5, 45), word(STARTED, 45), collected(50)) == "conforms"


def test_observations_of_something_else_do_not_count() -> None:
    other: Tell = lambda story: story.look(20.0, LINE, subject="node-9", id="look")  # noqa: E731
    assert label(LISTED, other) == "unproven: gap"


def test_observation_or_lifetime_cannot_be_waited_for() -> None:
    for check in (LISTED, NOT_LISTED, FEW, LIVES):
        assert not checks.can_be_waited_for(check)
        assert checks.describe(check)
