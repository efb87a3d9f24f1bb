"""What should not come: proven behind a fence only."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from nodeproof.checks import counting, moments
from nodeproof.model import window as windows
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.judgment import Moment
from tests.unit.given import (
    DELETION,
    READY,
    STAYS,
    TAINTED,
    UNKNOWN,
    assert_verdict,
    recovered,
    run,
)
from tests.unit.histories import (
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    Story,
)

Json = Any
QUIET, LONG = windows.absence(5.0), windows.absence(30.0)


def test_absence_conforms_behind_a_fence() -> None:
    assert_verdict(run(STAYS, recovered().fence(40.0)), "conforms", "did not occur for 5.00 s")


@pytest.mark.parametrize("evicted_t", [30.5, 32.0, 34.5])
def test_what_should_not_come_deviates(evicted_t: float) -> None:
    assert_verdict(run(STAYS, recovered(evicted_t).fence(40.0)), "deviates", "must not")


@pytest.mark.parametrize("evicted_t", [30.0, 30.2, 34.9, 35.1])
def test_what_comes_near_an_end_of_the_wait_proves_nothing(evicted_t: float) -> None:
    """Which of two watches is ahead is not known, nor how late either was."""
    assert_verdict(run(STAYS, recovered(evicted_t).fence(40.0)), "unproven: gap", "within the slack")


@pytest.mark.parametrize("evicted_t", [29.8, 30.0, 30.2, 32.0])
def test_what_does_not_come_before_either_deviates_where_it_follows_at_once(evicted_t: float) -> None:
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, recovered(evicted_t).fence(40.0)), "deviates", "must not")


def test_what_came_before_that_is_no_absence() -> None:
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, recovered(29.6).fence(40.0)), "unproven: gap", "within the slack")
    assert_verdict(run(check, recovered(25.0).fence(40.0)), "unproven: gap", "had already occurred")
    assert_verdict(run(check, recovered().fence(40.0)), "conforms", "did not occur")


def test_what_is_younger_than_that_stays_all_the_same() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    story.pod(29.8, node=NODE)
    story.condition(30.0, "True")
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, story.fence(40.0)), "conforms", "did not occur")


def test_what_one_watch_delivers_is_in_order() -> None:
    pod_is_bound = moments.pod_bound(NAMESPACE, POD)
    check = pod_is_bound.never_after(moments.pod_created(NAMESPACE, POD), windows.absence(5.0))
    story = Story()
    story.pod(2.0)
    story.bind(2.01)
    assert_verdict(run(check, story.fence(20.0)), "deviates", "must not")


def test_a_deviation_needs_no_fence() -> None:
    assert_verdict(run(STAYS, recovered(32.0)), "deviates")


def test_what_comes_after_the_wait_does_not_matter() -> None:
    assert_verdict(run(STAYS, recovered(35.5).fence(40.0)), "conforms")


@pytest.mark.parametrize(
    ("story", "word"),
    [
        (recovered(), "no fence"),
        (recovered().fence(34.0), "too early"),
        (recovered().fence(40.0, blind=["pods"]), "sentinel"),
        (recovered(33.0, seen=False).fence(40.0), "differ"),
    ],
)
def test_absence_is_not_proven(story: Story, word: str) -> None:
    assert_verdict(run(STAYS, story), "unproven: gap", word)


def test_absence_in_a_watch_that_nobody_had_is_refused() -> None:
    story = Story(resources=("nodes", "leases"))
    story.condition(20.0, "Unknown")
    story.condition(30.0, "True")
    event = moments.event_reported("Evicted", "Pod", POD, "")
    check = event.never_after(READY, windows.absence(5.0))
    with pytest.raises(LookupError, match="not recorded: events"):
        run(check, story.fence(40.0))


@pytest.mark.parametrize(("since_t", "until_t"), [(29.0, 31.0), (32.0, 33.0), (34.0, 38.0)])
def test_absence_in_a_gap_is_not_proven(since_t: float, until_t: float) -> None:
    story = recovered()
    story.gap(since_t, until_t, "pods")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "had a gap")


def test_what_was_never_there_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "did not exist yet")


def test_what_was_already_leaving_cannot_prove_that_it_stays() -> None:
    assert_verdict(run(STAYS, recovered(25.0).fence(40.0)), "unproven: gap", "had already occurred")


def test_what_was_already_gone_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.condition(20.0, "Unknown")
    story.remove(25.0, "pods", NAMESPACE, POD)
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "was already removed")


def test_a_wait_of_no_time_proves_nothing() -> None:
    check = DELETION.never_after(READY, windows.absence(0.0))
    assert_verdict(run(check, recovered().fence(40.0)), "unproven: scaled", "is empty")


def test_cordon() -> None:
    blocked = moments.pod_bound(NAMESPACE, POD).never_after(
        moments.pod_created(NAMESPACE, POD), windows.absence(5.0)
    )
    unchanged = moments.conditions_changed(NODE).never_after(moments.cordoned(NODE), windows.absence(5.0))
    story = Story()
    story.cordon(1.0)
    story.pod(2.0)
    story.unfit(2.1)
    for check in (blocked, unchanged):
        assert_verdict(run(check, story), "unproven: gap")
    story.condition(5.0, "True", type_="Cordoned")
    story.bind(6.0)
    story.fence(20.0)
    assert_verdict(run(blocked, story), "deviates")
    assert_verdict(run(unchanged, story), "deviates")


def test_cordon_conforms() -> None:
    story = Story()
    story.cordon(1.0)
    story.pod(2.0)
    story.unfit(2.1)
    story.cordon(10.0, on=False)
    story.bind(10.4)
    story.fence(20.0)
    pod = (NAMESPACE, POD)
    blocked = moments.pod_bound(*pod).never_after(moments.pod_created(*pod), windows.absence(5.0))
    freed = moments.pod_bound(*pod).after(moments.uncordoned(NODE), windows.prompt(windows.BIND_S))
    for check in (blocked, freed):
        assert_verdict(run(check, story), "conforms")


# renewals


# objects


def ready_again() -> Story:
    """A node that is Ready from 20.5 s on."""
    story = Story()
    story.condition(20.0, "False")
    story.condition(20.5, "True")
    return story


def made_anew(story: Story, t: float, *, ready: str = "True", taints: Json = None) -> Story:
    """The Node is removed, and made again 0.2 s later, as it is from then on."""
    body = story.object("nodes", "", OTHER)
    body["metadata"] = {}
    body["spec"] = {} if taints is None else {"taints": taints}
    for each in body["status"]["conditions"]:
        if each["type"] == "Ready":
            each["status"] = ready
    story.remove(t, "nodes", "", NODE)
    story.change(t + 0.2, "nodes", "", NODE, body)
    return story


BORN_TAINTED = [{"key": UNREACHABLE, "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("event", "ready", "taints", "expected", "word"),
    [
        (TAINTED, "True", BORN_TAINTED, "deviates", "must not"),
        (UNKNOWN, "Unknown", None, "deviates", "must not"),
        (TAINTED, "True", None, "unproven: gap", "was removed 0.50 s later"),
        (UNKNOWN, "False", BORN_TAINTED, "unproven: gap", "was removed"),
        (moments.conditions_changed(NODE), "True", None, "unproven: gap", "was removed"),
        (moments.no_execute_written(NODE, OTHER), "True", None, "unproven: gap", "was removed"),
        (moments.no_execute_written(NODE, OTHER), "True", BORN_TAINTED, "unproven: gap", "was removed"),
        (moments.removed("nodes", NODE), "True", None, "deviates", "must not"),
        (moments.no_execute_written(OTHER), "True", BORN_TAINTED, "conforms", "did not occur"),
    ],
)
def test_an_object_that_is_made_anew_has_the_state_that_it_is_made_with(
    event: Moment, ready: str, taints: Json, expected: str, word: str
) -> None:
    story = made_anew(ready_again(), 21.0, ready=ready, taints=taints).fence(60.0)
    assert_verdict(run(event.never_after(READY, QUIET), story), expected, word)


def test_a_namesake_that_carries_on_what_was_there_is_no_change() -> None:
    story = Story()
    story.taint(5.0)
    story.condition(20.0, "False")
    story.condition(20.5, "True")
    made_anew(story, 21.0, taints=BORN_TAINTED).fence(60.0)
    assert_verdict(run(TAINTED.never_after(READY, QUIET), story), "unproven: gap", "had already occurred")


@pytest.mark.parametrize(
    ("gone_t", "expected"), [(20.6, "unproven: gap"), (50.4, "unproven: gap"), (50.6, "conforms")]
)
def test_an_object_that_is_away_cannot_prove_that_something_did_not_come(
    gone_t: float, expected: str
) -> None:
    story = ready_again()
    story.remove(gone_t, "nodes", "", NODE)
    assert_verdict(run(TAINTED.never_after(READY, LONG), story.fence(60.0)), expected)


def next_taint(node: str) -> Moment:
    return moments.next_of(moments.taint_added(node, UNREACHABLE, "NoExecute"), after=READY)


@pytest.mark.parametrize(
    ("event", "tainted_t", "expected", "word"),
    [
        (next_taint("node-9"), None, "unproven: gap", "node-9 did not exist yet"),
        (next_taint(NODE), 5.0, "unproven: gap", "had already occurred"),
        (next_taint(NODE), None, "conforms", ""),
        (next_taint(NODE), 22.0, "deviates", ""),
        (moments.next_of(TAINTED, after=UNKNOWN), None, "unproven: gap", "had not occurred yet"),
        (moments.next_of(next_taint(NODE), after=READY), 5.0, "unproven: gap", "had already occurred"),
        (moments.all_came(TAINTED, UNKNOWN), 5.0, "unproven: gap", "had already occurred"),
        (moments.all_came(UNKNOWN, next_taint("node-9")), None, "unproven: gap", "did not exist yet"),
        (moments.all_came(TAINTED, UNKNOWN), None, "conforms", ""),
    ],
)
def test_a_moment_that_is_made_of_others_is_absent_where_each_of_them_could_have_come(
    event: Moment, tainted_t: float | None, expected: str, word: str
) -> None:
    story = Story()
    deeds = [(20.0, partial(story.condition, 20.0, "False")), (20.5, partial(story.condition, 20.5, "True"))]
    if tainted_t is not None:
        deeds.append((tainted_t, partial(story.taint, tainted_t)))
    for _t, deed in sorted(deeds, key=lambda pair: pair[0]):
        deed()
    assert_verdict(run(event.never_after(READY, QUIET), story.fence(60.0)), expected, word)


def test_what_was_never_there_did_not_come_so_many_times_as_none() -> None:
    story = ready_again().fence(60.0)
    span = {"after": moments.condition_became(NODE, "Ready", "False"), "until": READY}
    for node, expected in (("node-9", "unproven: gap"), (OTHER, "conforms")):
        never = counting.counted(moments.taint_added(node, UNREACHABLE, "NoExecute"), 0, 0, **span)
        assert_verdict(run(never, story), expected)
