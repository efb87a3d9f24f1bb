"""A claim that the cluster leaves alone what somebody did to it."""

from __future__ import annotations

import pytest

from nodeproof.checks.judge import judge
from nodeproof.checks.lasting import lasted
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check
from tests.unit.given import CLAIM, UNKNOWN
from tests.unit.histories import Story, configuration

IN = ("planned", "armed", "injecting", "injected")
OVER = ("healing", "healed", "closed")
NOT_INJECTED = "unproven: not-injected"


def label(story: Story, check: Check) -> str:
    return judge(CLAIM, check, story.fence(60.0).history(), configuration()).label


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((*IN, *OVER), "conforms"),
        ((*IN, "unproven", *OVER), "deviates"),
        ((*IN[:-1], "unproven", *OVER), NOT_INJECTED),
        (IN, "unproven: gap"),
        ((), NOT_INJECTED),
    ],
)
def test_what_was_done_is_there_until_it_is_undone(steps: tuple[str, ...], expected: str) -> None:
    story = Story()
    story.fault(10.0, *steps)
    assert label(story, lasted("cut")) == expected


def test_where_no_probe_was_answered_nobody_knows_whether_it_lasted() -> None:
    story = Story()
    story.fault(10.0, *IN, "unanswered", *OVER)
    assert label(story, lasted("cut")) == "unproven: gap"
    assert label(story, UNKNOWN.after(UNKNOWN, windows.prompt(5.0))) == NOT_INJECTED


def test_each_of_several_lasts_by_itself_and_what_a_switch_healed_proves_nothing() -> None:
    story = Story()
    story.fault(10.0, *IN, *OVER)
    story.fault(20.0, *IN, "unproven", *OVER, id_="other")
    assert label(story, lasted("cut")) == "conforms"
    assert label(story, lasted("other")) == "deviates"
    story.fault(25.0, *IN[:-1], "unproven", *OVER, id_="never")
    assert label(story, lasted("other")) == NOT_INJECTED
    switched = Story()
    switched.fault(10.0, *IN, "unproven", *OVER)
    switched.say(10.5, "deadman", id="cut")
    assert label(switched, lasted("cut")) == NOT_INJECTED


def test_of_a_fault_that_something_undid_nothing_else_is_proven() -> None:
    story = Story()
    story.fault(10.0, *IN, "unproven", *OVER)
    story.condition(12.0, "Unknown")
    assert label(story, UNKNOWN.after(UNKNOWN, windows.prompt(5.0))) == NOT_INJECTED
