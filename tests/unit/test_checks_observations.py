"""Checks of what was seen once: answers, looks, metrics."""

from __future__ import annotations

import pytest

from nodeproof.checks import checks, read_off
from nodeproof.checks.checks import run_check
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import find
from nodeproof.checks.observations import grew, same_as, shows
from nodeproof.cluster.metrics import counting_since_s, total
from nodeproof.model.judgment import Check
from nodeproof.model.observation import Observation
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Ground
from tests.unit.given import CLAIM
from tests.unit.histories import WALL_OFFSET_S, Story, configuration

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


@pytest.mark.parametrize(
    ("pattern", "value", "label"),
    [
        ({"status": None}, "no answer", "unproven: gap"),
        ({"status": None}, {"status": None}, "conforms"),
        ({"$not": [{"type": "NetworkUnavailable"}]}, None, "unproven: gap"),
        ({"$not": [{"type": "NetworkUnavailable"}]}, [], "conforms"),
        ({"x": {"$present": False}}, None, "unproven: gap"),
        ({"x": {"$present": False}}, {}, "conforms"),
        ({"$not": {"$contains": "z"}}, None, "unproven: gap"),
        ({"$not": {"$contains": "z"}}, "", "conforms"),
        ({"body": {"message": {"$contains": "forbidden"}}}, {"status": 404, "body": {}}, "deviates"),
        # Of what is to be there it is no matter why it is not.
        ({"x": 1}, None, "deviates"),
        ({"x": 1}, "no answer", "deviates"),
        ([1], None, "deviates"),
        (["a"], "abc", "deviates"),
        ({"exitCode": {"$present": True}}, {"exitCode": 0}, "conforms"),
        (1, True, "deviates"),
        # A pattern of no kind may be about nothing.
        (None, None, "conforms"),
        ({"$in": [None]}, None, "conforms"),
        ({"$present": False}, None, "conforms"),
        ({"$not": None}, None, "deviates"),
    ],
)
def test_only_what_could_hold_something_lacks_it(pattern: object, value: object, label: str) -> None:
    assert judged(shows(FIRST, pattern), first=value).label == label


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
    [
        ("1Gi", "1073741824", "conforms"),
        ("950m", "0.95", "conforms"),
        ("1Gi", "1G", "deviates"),
        ("1.10", "1.1", "deviates"),
        ("v1.10", "v1.1", "deviates"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", "conforms"),
        ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "conforms"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "deviates"),
        ("2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "deviates"),
        ({"memory": "1Gi", "cpus": [1, 2]}, {"cpus": [1, 2], "memory": "1048576Ki"}, "conforms"),
        ({"memory": "1Gi"}, {"memory": "1Gi", "cpu": "1"}, "deviates"),
        ([1, 2], [2, 1], "deviates"),
        ([1], [1, 2], "deviates"),
        (1, True, "deviates"),
        (1, 1.0, "conforms"),
        ("", "1Gi", "deviates"),
    ],
)
def test_the_same_may_be_written_otherwise(first: object, second: object, outcome: str) -> None:
    assert judged(same_as(SECOND, FIRST), first=first, second=second).outcome == outcome


@pytest.mark.parametrize(
    ("first", "second", "later_s", "label"),
    [
        (5.0, 1.0, 60.0, "unproven: gap"),
        (1.0, 4.0, 60.0, "deviates"),
        (None, 2.0, 60.0, "unproven: gap"),
        (1.0, 2.0, 0.0, "conforms"),
        (1.0, 2.0, 1.0, "conforms"),
        (1.0, 6.0, 0.0, "deviates"),
        (1.0, 2.0, None, "conforms"),
    ],
)
def test_a_counter_begins_anew_with_its_process(
    first: float | None, second: float, later_s: float | None, label: str
) -> None:
    story = Story()
    for at, (name, value) in enumerate((("first", first), ("second", second))):
        told = {"id": name, "what": "value", "subject": "node-1"}
        started = {} if later_s is None else {"process_s": WALL_OFFSET_S - 100.0 + later_s * at}
        story.say(10.0 + at, "observed", **told, value=value, asked_t=9.9 + at, **started)
    check = grew(FIRST, SECOND, 0, 3)
    assert run_check(check, story.history(), Ground(configuration(), 0.5), CLAIM).label == label


def test_a_clock_that_was_set_starts_no_process() -> None:
    """A kernel tells the start of a process by its wall clock."""
    story = Story()
    for t, value, moved_s in ((10.0, 1.0, 0.0), (30.0, 2.0, 500.0)):
        told = {"id": "first" if t == 10.0 else "second", "what": "value", "subject": "node-1"}
        started_s = WALL_OFFSET_S - 100.0 + moved_s
        story.say(t, "observed", **told, value=value, asked_t=t - 0.1, process_s=started_s)
    story.say(20.0, "wall", offset_s=WALL_OFFSET_S + 500.0, since=19.95)
    check = grew(FIRST, SECOND, 1, 1)
    assert run_check(check, story.history(), Ground(configuration(), 0.5), CLAIM).label == "conforms"


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
# TYPE took_seconds histogram
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 4
took_seconds_count 3
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79531600433e+09
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


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("evictions_total", True),
        ("took_seconds_count", True),
        ("took_seconds_sum", True),
        ("not_exported_yet_total", True),
        ("zone_size", False),
    ],
)
def test_a_count_is_told_with_when_its_process_was_started(name: str, counts: bool) -> None:
    assert counting_since_s(METRICS, name) == (1795316004.33 if counts else None)


def test_a_process_that_does_not_say_when_it_was_started_is_any() -> None:
    assert counting_since_s("# TYPE evictions_total counter\nevictions_total 7\n", "evictions_total") is None
