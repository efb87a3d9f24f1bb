"""Checks of witnesses and looks: what conforms, what deviates, and everything that proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodeproof.checks import checks, looks, moments, witnessed
from nodeproof.checks.checks import run_check
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import slack_s
from nodeproof.model.testimony import SIGTERM, STARTED
from nodeproof.model.window import Ground
from tests.unit.histories import NAMESPACE, NODE, POD, Story, configuration

CLAIM = Claim("a.b", "a", "s", "behaviour", "kubelet", ">=1.18", {"v1.28": True}, (), ("s",))
BEGAN, HEALING = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
TERM, END = witnessed.sigterm(POD), witnessed.last_sign(POD)
CUT_T, HEALING_T = 10.0, 40.0
LINE = "shutdown kubelet delay"
Tell = Callable[[Story], None]


def story(*telling: Tell) -> Story:
    """A fault from `CUT_T` to `HEALING_T`, and what else is told."""
    made = Story()
    made.fault(CUT_T, "planned")
    made.say(CUT_T, "fault", id="cut", fault={}, node=NODE, step="injected")
    made.say(HEALING_T, "fault", id="cut", fault={}, node=NODE, step="healing")
    for tell in telling:
        tell(made)
    made.fence(60.0)
    return made


def label(check: Check, *telling: Tell) -> str:
    history = story(*telling).history()
    ground = Ground(configuration(), slack_s(history, configuration()))
    return run_check(Check.from_json(check.to_json()), history, ground, CLAIM).label


def beats(since_t: float, until_t: float) -> Tell:
    return lambda made: made.beats(since_t, until_t)


def word(what: str, t: float) -> Tell:
    return lambda made: made.tell(what, t)


def heard(t: float) -> Tell:
    return lambda made: made.hear(t)


LIVES = looks.lives_on(POD, BEGAN, HEALING)


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ((beats(5, 45), heard(50)), "conforms"),
        ((beats(5, 45),), "unproven: gap"),
        ((beats(5, 38), heard(38)), "unproven: gap"),
        ((beats(5, 20), heard(50)), "deviates"),
        ((beats(5, 20), beats(26, 45), heard(50)), "deviates"),
        ((beats(5, 20), beats(24, 45), heard(50)), "conforms"),
        ((heard(50),), "deviates"),
        ((beats(5, 45), word(STARTED, 20), heard(50)), "deviates"),
        ((beats(5, 45), word(STARTED, 5), heard(50)), "conforms"),
    ],
)
def test_a_witness_lives_on(telling: tuple[Tell, ...], expected: str) -> None:
    assert label(LIVES, *telling) == expected


def test_too_short_a_time_tells_no_life() -> None:
    soon = moments.fault_step("cut", "soon")
    step: Tell = lambda made: made.say(12.0, "fault", id="cut", fault={}, node=NODE, step="soon")  # noqa: E731
    assert label(looks.lives_on(POD, BEGAN, soon), beats(5, 45), heard(50), step) == "unproven: scaled"


@pytest.mark.parametrize(
    "missing", [(BEGAN, moments.fault_step("x", "y")), (moments.fault_step("x", "y"), HEALING)]
)
def test_without_its_moments_a_life_is_not_told(missing: tuple[Moment, Moment]) -> None:
    assert label(looks.lives_on(POD, *missing), beats(5, 45), heard(50)) == "unproven: not-injected"


@pytest.mark.parametrize(
    ("telling", "expected"),
    [
        ((word(SIGTERM, 41), heard(50)), "conforms"),
        ((word(SIGTERM, 38), heard(50)), "deviates"),
        ((word(SIGTERM, 48), heard(50)), "deviates"),
        ((heard(50),), "deviates"),
        ((), "unproven: gap"),
        ((heard(42),), "unproven: gap"),
    ],
)
def test_when_a_witness_gets_sigterm(telling: tuple[Tell, ...], expected: str) -> None:
    assert label(TERM.after(HEALING, windows.prompt(5)), *telling) == expected


@pytest.mark.parametrize(
    ("end_t", "expected"),
    [(13.0, "deviates"), (19.0, "deviates"), (20.1, "conforms"), (24.0, "conforms"), (26.0, "deviates")],
)
def test_a_grace_period(end_t: float, expected: str) -> None:
    check = END.after(TERM, windows.grace_period(10))
    assert label(check, word(SIGTERM, 10), word("beat", end_t), heard(50)) == expected


@pytest.mark.parametrize(
    ("term_t", "expected"), [(19.9, "deviates"), (20.0, "conforms"), (24.0, "conforms"), (27.0, "deviates")]
)
def test_what_comes_afterwards(term_t: float, expected: str) -> None:
    def other(made: Story) -> None:
        made.tell("beat", 20.0, by="other")
        made.hear(50.0, by="other")

    check = TERM.after(witnessed.last_sign("other"), windows.afterwards(5))
    assert label(check, other, word(SIGTERM, term_t), heard(50)) == expected


def test_an_anchor_that_nobody_heard_proves_nothing() -> None:
    check = END.after(TERM, windows.grace_period(10))
    assert label(check) == "unproven: gap"
    assert label(check, beats(5, 45), heard(50)) == "unproven: no-anchor"


def test_a_recording_that_ended_early_does_not_tell_of_a_machine_that_ends() -> None:
    check = witnessed.machine_ended(NODE).after(HEALING, windows.prompt(30))
    assert label(check) == "unproven: gap"
    assert label(witnessed.machine_ended(NODE).after(HEALING, windows.prompt(5))) == "deviates"


def test_how_wrong_a_node_tells_the_time_is_part_of_the_slack() -> None:
    quiet, exact, wrong = story(), story(heard(50)), story(lambda made: made.hear(50.0, error_s=0.5))
    slacks = [slack_s(made.history(), configuration()) for made in (quiet, exact, wrong)]
    assert slacks == pytest.approx([slacks[0], slacks[0] + 0.02, slacks[0] + 0.5])


def look(t: float, value: str) -> Tell:
    """A scenario looks once."""
    return lambda made: made.look(t, value, id=f"look-{t:g}")


def looks_on(since_t: float, until_t: float, value: str, each_s: float = 0.5) -> Tell:
    """Somebody looks again and again."""

    def tell(made: Story) -> None:
        for number in range(int((until_t - since_t) / each_s) + 1):
            made.look(since_t + number * each_s, value)

    return tell


def unanswered(t: float) -> Tell:
    return lambda made: made.say(
        t, "observed", what="locks", subject=NODE, value=None, error="HTTP 500", asked_t=t - 0.1
    )


LISTED = looks.listed("locks", NODE, LINE, BEGAN, HEALING)
NOT_LISTED = looks.not_listed("locks", NODE, LINE, BEGAN)
FEW = looks.amounts_to("locks", NODE, 1, 5, BEGAN, HEALING)


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
def test_looks(check: Check, telling: tuple[Tell, ...], expected: str) -> None:
    assert label(check, *telling) == expected


SHOWN = looks.shown_throughout("locks", NODE, LINE, BEGAN, HEALING)
NEVER = looks.not_listed("locks", NODE, "Unknown", HEALING)


@pytest.mark.parametrize(
    "check", [LISTED, NEVER, SHOWN, looks.amounts_to("locks", NODE, 7, 7, BEGAN, HEALING)]
)
def test_looks_that_are_repeated_go_on_to_the_end(check: Check) -> None:
    value = "7" if check.name == "amounts-to" else LINE
    all_along = looks_on(2.0, 45.0, value)
    assert label(check, all_along) == "conforms"
    assert label(check, looks_on(3.0, 3.0, value)) == "unproven: gap"
    assert label(check, looks_on(10.3, 10.3, value)) == "unproven: gap"
    assert label(check, looks_on(2.0, 20.0, value)) == "unproven: gap"
    assert label(check, looks_on(2.0, 15.0, value), looks_on(36.0, 45.0, value)) == "unproven: gap"
    assert label(check, all_along, unanswered(20.1)) == "unproven: gap"
    assert label(check, all_along, unanswered(41.0)) == "conforms"
    assert label(check, looks_on(2.0, 20.0, value), unanswered(20.1), word_of(21.0)) == "deviates"


def word_of(t: float) -> Tell:
    """Something else is seen."""
    return lambda made: made.look(t, "Unknown")


REMOVED = moments.pod_gone(NAMESPACE, POD)
UP_TO_REMOVAL = looks.shown_throughout("locks", NODE, LINE, BEGAN, REMOVED)
NOT_BEFORE_REMOVAL = looks.not_listed("locks", NODE, "gone", REMOVED)


def removal(made: Story) -> None:
    """A pod is removed at 30 s, as its watch tells."""
    made.pod(1.0)
    made.remove(30.0, "pods", NAMESPACE, POD)


@pytest.mark.parametrize("check", [UP_TO_REMOVAL, NOT_BEFORE_REMOVAL])
def test_a_look_near_an_end_that_a_watch_tells_may_belong_to_what_is_beyond_it(check: Check) -> None:
    def gone(t: float) -> Tell:
        return lambda made: made.look(t, "gone")

    told = (removal, looks_on(10.5, 29.5, LINE))
    assert label(check, *told, gone(29.995)) == "conforms"
    assert label(check, *told, gone(29.6)) == "deviates"


def test_a_look_near_an_end_of_our_own_is_inside() -> None:
    assert label(SHOWN, looks_on(10.5, 39.5, LINE), lambda made: made.look(39.995, "gone")) == "deviates"


def test_a_start_after_the_end_is_no_start_in_between() -> None:
    assert label(LIVES, beats(5, 45), word(STARTED, 45), heard(50)) == "conforms"


def test_looks_at_something_else_do_not_count() -> None:
    other: Tell = lambda made: made.look(20.0, LINE, subject="node-9", id="look")  # noqa: E731
    assert label(LISTED, other) == "unproven: gap"


def test_nobody_can_wait_for_a_look_or_a_life() -> None:
    for check in (LISTED, NOT_LISTED, FEW, LIVES):
        assert not checks.can_be_waited_for(check)
        assert checks.describe(check)
