"""Working hours: when a run and a fault may begin, and a fault end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from nodeproof.existing.conditions import DAYS, Hours
from nodeproof.model.problem import Problem
from nodeproof.session.options import Options, resolve
from tests.unit.own_cluster import JsonHandler, serving

BERLIN = Hours("Europe/Berlin", ("Mon", "Tue", "Sun"), "09:00", "16:00")
MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Midnight in UTC; 01:00 in Berlin."""
SUMMER = datetime(2030, 7, 1, tzinfo=UTC)
"""A Monday, 02:00 in Berlin."""


def refusal(hours: Hours, begin: datetime, lasts: timedelta = timedelta()) -> str:
    return "; ".join(hours.refusals(begin, begin + lasts))


@pytest.mark.parametrize(
    ("begin", "is_allowed"),
    [
        (MONDAY + timedelta(hours=8), True),
        (MONDAY + timedelta(hours=7, minutes=59, seconds=59), False),
        (MONDAY + timedelta(hours=15), True),
        (MONDAY + timedelta(hours=15, seconds=1), False),
        (MONDAY + timedelta(days=2, hours=10), False),
        (SUMMER + timedelta(hours=7), True),
        (SUMMER + timedelta(hours=14, minutes=1), False),
    ],
)
def test_hours_are_those_of_the_zone(begin: datetime, is_allowed: bool) -> None:
    assert (refusal(BERLIN, begin) == "") == is_allowed


def test_weekday_is_that_of_the_zone() -> None:
    auckland = Hours("Pacific/Auckland", ("Tue",), "00:00", "24:00")
    assert refusal(auckland, MONDAY + timedelta(hours=12)) == ""
    assert refusal(auckland, MONDAY + timedelta(days=1, hours=12)) != ""


@pytest.mark.parametrize(
    ("lasts", "reason"),
    [
        (timedelta(minutes=30), ""),
        (timedelta(minutes=31), "the fault may last until Mon 16:01, outside of the working hours"),
        (timedelta(hours=24), "the fault may last until Tue 15:30, outside of the working hours"),
    ],
)
def test_fault_must_end_in_the_hours_of_its_day(lasts: timedelta, reason: str) -> None:
    assert refusal(BERLIN, MONDAY + timedelta(hours=14, minutes=30), lasts).startswith(reason or "")
    assert bool(refusal(BERLIN, MONDAY + timedelta(hours=14, minutes=30), lasts)) == bool(reason)


def test_fault_over_a_change_of_the_clock_ends_by_the_clock() -> None:
    # On this Sunday the clock goes from 02:00 to 03:00.
    before = datetime(2030, 3, 31, 0, 30, tzinfo=UTC)
    early = replace(BERLIN, since="01:00", until="03:10")
    assert refusal(early, before, timedelta(minutes=40)) == ""
    assert "Sun 03:11" in refusal(early, before, timedelta(minutes=41))


# A run


class NoAnswer(JsonHandler):
    """An API server that fails the test if it gets a request."""

    requests: tuple[str, ...] = ()

    def do_GET(self) -> None:
        NoAnswer.requests = (*NoAnswer.requests, self.path)
        self.answer(500, {})


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Path]:
    with serving(NoAnswer, tmp_path, ["unit-down"]):
        yield tmp_path / "cluster.yaml"


def test_run_outside_of_the_hours_is_refused_before_the_cluster_is_contacted(inventory: Path) -> None:
    day = DAYS[(datetime.now(UTC).weekday() + 3) % len(DAYS)]
    hours = {"zone": "UTC", "days": [day], "from": "09:00", "to": "16:00"}
    inventory.write_text(yaml.safe_dump(yaml.safe_load(inventory.read_text()) | {"hours": hours}))
    with pytest.raises(Problem, match=f"outside of the working hours {day} 09:00-16:00 UTC") as refused:
        resolve(Options(cluster=str(inventory)))
    assert len(str(refused.value).splitlines()) == 1
    assert NoAnswer.requests == ()
