"""A scenario left behind by a slow host proves nothing and is retried."""

from __future__ import annotations

import pytest

from nodeproof.checks import moments
from nodeproof.model.problem import HostTooLoaded
from nodeproof.scenario.lab import check_not_due
from nodeproof.session.judging import close
from tests.unit.histories import CUT_T, GRACE_S, configuration, last_renewal_t, partition
from tests.unit.sample_checks import CLAIM, UNKNOWN

SINCE = moments.fault_step("cut", "injected")
UNKNOWN_T = last_renewal_t() + GRACE_S + 0.6


def test_event_that_was_due_makes_the_host_too_loaded() -> None:
    with pytest.raises(HostTooLoaded, match="before the scenario was ready"):
        check_not_due(partition().history(), UNKNOWN, SINCE, UNKNOWN_T - CUT_T - 3.0)


@pytest.mark.parametrize("due_s", [UNKNOWN_T - CUT_T + 3.0, 900.0])
def test_event_before_its_due_time_is_left_to_the_judgment(due_s: float) -> None:
    check_not_due(partition().history(), UNKNOWN, SINCE, due_s)


@pytest.mark.parametrize(
    ("broken", "code"),
    [("HostTooLoaded: it occurred before", "host-too-loaded"), ("Problem: it occurred before", "gap")],
)
def test_claims_of_a_late_scenario_are_too_loaded(broken: str, code: str) -> None:
    closed = close([CLAIM], [], partition().history(), configuration(), broken)
    assert [verdict.code for _claim, verdict in closed.verdicts()] == [code]
