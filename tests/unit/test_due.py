"""A scenario left behind by a slow host proves nothing and is retried."""

from __future__ import annotations

import pytest

from nodeproof.checks import moments
from nodeproof.model.problem import HostTooLoaded
from nodeproof.scenario.lab import check_not_due
from nodeproof.session.judging import close
from tests.unit.histories import CUT_T, GRACE_S, configuration, partition
from tests.unit.sample_checks import CLAIM, UNKNOWN

SINCE, CHANGE = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
HELD_S = 5.0


def check(healed_s: float, due_s: float) -> None:
    """Check a scenario whose fault was healed `healed_s` after its injection."""
    story = partition().fault(CUT_T + healed_s, "healing")
    check_not_due(story.history(), UNKNOWN, CHANGE, SINCE, due_s)


@pytest.mark.parametrize("due_s", [GRACE_S - 3.0, GRACE_S - 1.5])
def test_scenario_that_is_too_late_to_change_an_event_makes_the_host_too_loaded(due_s: float) -> None:
    with pytest.raises(HostTooLoaded, match="may have been due before"):
        check(healed_s=GRACE_S, due_s=due_s)


def test_change_in_time_is_left_to_the_judgment() -> None:
    check(healed_s=HELD_S, due_s=HELD_S)


def test_event_before_its_due_time_is_left_to_the_judgment() -> None:
    check(healed_s=900.0, due_s=800.0)


@pytest.mark.parametrize(
    ("broken", "code"),
    [("HostTooLoaded: it occurred before", "host-too-loaded"), ("Problem: it occurred before", "gap")],
)
def test_claims_of_a_late_scenario_are_too_loaded(broken: str, code: str) -> None:
    closed = close([CLAIM], [], partition().history(), configuration(), broken)
    assert [verdict.code for _claim, verdict in closed.verdicts()] == [code]
