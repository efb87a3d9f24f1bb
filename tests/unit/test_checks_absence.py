"""What should not come: proven behind a fence only."""

from __future__ import annotations

import pytest

from nodeproof.checks import moments
from nodeproof.model import window as windows
from tests.unit.given import (
    DELETION,
    READY,
    STAYS,
    assert_verdict,
    recovered,
    run,
)
from tests.unit.histories import (
    NAMESPACE,
    NODE,
    POD,
    Story,
)


def test_absence_conforms_behind_a_fence() -> None:
    assert_verdict(run(STAYS, recovered().fence(40.0)), "conforms", "did not come for 5.00 s")


@pytest.mark.parametrize("evicted_t", [30.5, 32.0, 34.5])
def test_what_should_not_come_deviates(evicted_t: float) -> None:
    assert_verdict(run(STAYS, recovered(evicted_t).fence(40.0)), "deviates", "should not have")


@pytest.mark.parametrize("evicted_t", [30.0, 30.2, 34.9, 35.1])
def test_what_comes_near_an_end_of_the_wait_proves_nothing(evicted_t: float) -> None:
    """Which of two watches is ahead is not known, nor how late either was."""
    assert_verdict(run(STAYS, recovered(evicted_t).fence(40.0)), "unproven: gap", "within the slack")


@pytest.mark.parametrize("evicted_t", [29.8, 30.0, 30.2, 32.0])
def test_what_does_not_come_before_either_deviates_where_it_follows_at_once(evicted_t: float) -> None:
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, recovered(evicted_t).fence(40.0)), "deviates", "should not have")


def test_what_came_before_that_is_no_absence() -> None:
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, recovered(29.6).fence(40.0)), "unproven: gap", "within the slack")
    assert_verdict(run(check, recovered(25.0).fence(40.0)), "unproven: gap", "had come already")
    assert_verdict(run(check, recovered().fence(40.0)), "conforms", "did not come")


def test_what_is_younger_than_that_stays_all_the_same() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    story.pod(29.8, node=NODE)
    story.condition(30.0, "True")
    check = DELETION.never_after(READY, windows.absence_from_before(5.0))
    assert_verdict(run(check, story.fence(40.0)), "conforms", "did not come")


def test_what_one_watch_delivers_is_in_order() -> None:
    pod_is_bound = moments.pod_bound(NAMESPACE, POD)
    check = pod_is_bound.never_after(moments.pod_created(NAMESPACE, POD), windows.absence(5.0))
    story = Story()
    story.pod(2.0)
    story.bind(2.01)
    assert_verdict(run(check, story.fence(20.0)), "deviates", "should not have")


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
    with pytest.raises(LookupError, match="nobody recorded events"):
        run(check, story.fence(40.0))


@pytest.mark.parametrize(("since_t", "until_t"), [(29.0, 31.0), (32.0, 33.0), (34.0, 38.0)])
def test_absence_in_a_gap_is_not_proven(since_t: float, until_t: float) -> None:
    story = recovered()
    story.gap(since_t, until_t, "pods")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "blind")


def test_what_was_never_there_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "was not there yet")


def test_what_was_already_leaving_cannot_prove_that_it_stays() -> None:
    assert_verdict(run(STAYS, recovered(25.0).fence(40.0)), "unproven: gap", "had come already")


def test_what_was_already_gone_cannot_prove_that_it_stays() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    story.condition(20.0, "Unknown")
    story.remove(25.0, "pods", NAMESPACE, POD)
    story.condition(30.0, "True")
    assert_verdict(run(STAYS, story.fence(40.0)), "unproven: gap", "was gone already")


def test_a_wait_of_no_time_proves_nothing() -> None:
    check = DELETION.never_after(READY, windows.absence(0.0))
    assert_verdict(run(check, recovered().fence(40.0)), "unproven: scaled", "waits for nothing")


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
