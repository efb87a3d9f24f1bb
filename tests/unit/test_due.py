"""A scenario that a slow host leaves behind proves nothing, and is tried again."""

from __future__ import annotations

import pytest

from nodeproof.checks import moments
from nodeproof.model.problem import HostTooLoaded
from nodeproof.scenario.stage import check_not_due
from nodeproof.session.judging import close
from tests.unit.given import CLAIM, UNKNOWN
from tests.unit.histories import CUT_T, GRACE_S, configuration, last_renewal_t, partition

SINCE = moments.fault_step("cut", "injected")
UNKNOWN_T = last_renewal_t() + GRACE_S + 0.6


def test_event_that_was_due_makes_the_host_too_loaded() -> None:
    with pytest.raises(HostTooLoaded, match="before the scenario was ready"):
        check_not_due(partition().history(), UNKNOWN, SINCE, UNKNOWN_T - CUT_T - 3.0)


@pytest.mark.parametrize("due_s", [UNKNOWN_T - CUT_T + 3.0, 900.0])
def test_event_that_is_earlier_than_due_is_left_to_the_judgment(due_s: float) -> None:
    check_not_due(partition().history(), UNKNOWN, SINCE, due_s)


@pytest.mark.parametrize(
    ("broken", "code"),
    [("HostTooLoaded: it occurred before", "host-too-loaded"), ("Problem: it occurred before", "gap")],
)
def test_claims_of_a_scenario_left_behind_are_too_loaded(broken: str, code: str) -> None:
    closed = close([CLAIM], [], partition().history(), configuration(), broken)
    assert [verdict.code for _claim, verdict in closed.verdicts()] == [code]
