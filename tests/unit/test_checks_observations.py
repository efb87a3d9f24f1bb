"""Checks of what was seen once: answers, looks, metrics."""

from __future__ import annotations

import pytest

from nodeproof.checks import checks, read_off
from nodeproof.checks.checks import run_check
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import find
from nodeproof.checks.observations import grew, same_as, shows
from nodeproof.cluster.metrics import total
from nodeproof.model.judgment import Check
from nodeproof.model.observation import Observation
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Ground
from tests.unit.given import CLAIM
from tests.unit.histories import Story, configuration

ANSWER = {"status": 403, "body": {"message": "nodes is forbidden: no"}}
FIRST, SECOND = (Observation(name, "value", "node-1", None) for name in ("first", "second"))


def judged(check: Check, **values: object) -> Verdict:
    story = Story()
    for at, (name, value) in enumerate(values.items()):
        told = {"id": name, "what": "value", "subject": "node-1"}
        story.say(10.0 + at, "observed", **told, value=value, asked_t=9.9 + at)
    return run_check(check, story.history(), Ground(configuration(), 0.5), CLAIM)


@pytest.mark.parametrize(
    ("pattern", "outcome"),
    [
        ({"status": 403}, "conforms"),
        ({"status": 200}, "deviates"),
        ({"body": {"message": {"$contains": "forbidden"}}}, "conforms"),
        ({"body": {"message": {"$not": {"$contains": "forbidden"}}}}, "deviates"),
    ],
)
def test_an_answer_is_judged_by_a_pattern(pattern: object, outcome: str) -> None:
    assert judged(shows(FIRST, pattern), first=ANSWER).outcome == outcome


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(LookupError, match="matches everything"):
        judged(shows(FIRST, {}), first=ANSWER)


@pytest.mark.parametrize("check", [shows(FIRST, 1), same_as(FIRST, SECOND), grew(SECOND, FIRST, 1, 1)])
def test_what_nobody_saw_is_a_gap(check: Check) -> None:
    assert judged(check, another=1, second=1).code == "gap"


@pytest.mark.parametrize(("second", "outcome"), [("a", "conforms"), ("b", "deviates"), (None, "deviates")])
def test_two_looks_show_the_same(second: object, outcome: str) -> None:
    assert judged(same_as(SECOND, FIRST), first="a", second=second).outcome == outcome


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(2.0, 3.0, "conforms"), (None, 1.0, "conforms"), (2.0, 2.0, "deviates"), (2.0, 4.0, "deviates")],
)
def test_a_counter_grows(first: float | None, second: float, outcome: str) -> None:
    assert judged(grew(FIRST, SECOND, 1, 1), first=first, second=second).outcome == outcome


def test_a_counter_that_nobody_exports_proves_nothing() -> None:
    assert judged(grew(FIRST, SECOND, 0, 0), first=None, second=None).code == "gap"


def test_each_check_says_what_its_answer_is_read_off() -> None:
    assert read_off._TIMES.keys() == checks._CHECKS.keys()


@pytest.mark.parametrize("check", [shows(FIRST, 1), same_as(SECOND, FIRST), grew(FIRST, SECOND, 0, 0)])
def test_a_judgment_of_looks_is_a_verdict(check: Check) -> None:
    story = Story()
    for at, name in enumerate(("first", "second")):
        told = {"id": name, "what": "value", "subject": "node-1"}
        story.say(10.0 + at, "observed", **told, value=1, asked_t=9.9 + at)
    assert judge(CLAIM, check, story.history(), configuration()).outcome == "conforms"


def test_an_observation_is_a_moment() -> None:
    story = Story()
    story.say(10.0, "observed", **FIRST.to_json(), value=1)
    came = find(story.history(), FIRST.came)
    assert came is not None
    assert find(story.history(), SECOND.came) is None


METRICS = """# HELP zone_size [ALPHA] nodes
# TYPE zone_size gauge
zone_size{zone=":\x00:a"} 2
zone_size{zone=":\x00:b"} 3
# TYPE evictions_total counter
evictions_total 7
"""


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("zone_size", {"zone": ":\x00:a"}, 2.0),
        ("zone_size", {}, 5.0),
        ("zone_size", {"zone": "c"}, None),
        ("evictions_total", {}, 7.0),
        ("nothing", {}, None),
    ],
)
def test_a_metric_is_the_sum_of_its_samples(name: str, labels: dict[str, str], value: float | None) -> None:
    assert total(METRICS, name, labels) == value
