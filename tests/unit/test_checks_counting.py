"""Counting: how often something came between two moments, and everything that leaves it open."""

from __future__ import annotations

import pytest

from nodeproof.checks import moments
from nodeproof.checks.counting import counted
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import each, find, recording_began
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.verdict import Measured
from nodeproof.sources.audit import audit
from tests.unit.given import CLAIM, UNKNOWN, assert_verdict, run
from tests.unit.histories import NAMESPACE, NODE, POD, Story, configuration

SINCE_T, UNTIL_T, HEARD_T = 10.0, 20.0, 30.0
CORDONED, UNCORDONED = moments.cordoned(NODE), moments.uncordoned(NODE)
REPORTED = moments.event_reported("Seen", "Node", NODE, "")
SOURCE = audit(verb="patch", resource="nodes")
BOUND = {"spec": {"nodeName": NODE}}


def reporting(*times: float) -> Story:
    """A node is reported at these times, and cordoned from `SINCE_T` to `UNTIL_T`."""
    story = Story()
    for t in sorted([*times, SINCE_T, UNTIL_T]):
        if t in (SINCE_T, UNTIL_T):
            story.cordon(t, on=t == SINCE_T)
        else:
            story.event(t, "Seen", NODE, kind="Node")
    return story


def reports(low: int, high: int, event: Moment = REPORTED) -> Check:
    return counted(event, low, high, after=CORDONED, until=UNCORDONED)


def listening(*times: float, heard_t: float = HEARD_T, unsure: str = "") -> Story:
    """A source tells something at these times, and is heard."""
    story = reporting()
    story.tell("patch", *times, by=SOURCE.by)
    story.say(heard_t, "heard", by=SOURCE.by, error_s=0.0, unsure=unsure, node="", boot_id="")
    return story


def requests(low: int, high: int) -> Check:
    return counted(SOURCE.request, low, high, after=recording_began(), until=SOURCE.heard)


@pytest.mark.parametrize(("low", "high"), [(2, 2), (1, 2), (2, 5), (0, 2)])
def test_a_count_inside_its_range_conforms(low: int, high: int) -> None:
    verdict = run(reports(low, high), reporting(5.0, 12.0, 18.0, 25.0).fence(40.0))
    assert_verdict(verdict, "conforms", "occurred 2 times in 10.00 s")
    assert verdict.measured == Measured(2.0)


def test_what_did_not_come_between_its_moments_came_no_time() -> None:
    assert_verdict(run(reports(0, 0), reporting(5.0, 25.0).fence(40.0)), "conforms", "occurred 0 times")


def test_more_deviate_whoever_vouches() -> None:
    story = reporting(12.0, 14.0, 16.0)
    assert_verdict(run(reports(0, 2), story), "deviates", "occurred 3 times", "at most 2")
    assert_verdict(run(reports(0, 2), story.fence(40.0)), "deviates", "occurred 3 times", "at most 2")


def test_fewer_deviate_behind_a_fence_only() -> None:
    story = reporting(12.0)
    assert_verdict(run(reports(2, 3), story), "unproven: gap", "more", "no fence")
    assert_verdict(run(reports(2, 3), story.fence(40.0)), "deviates", "occurred 1 times", "at least 2")


def test_enough_may_be_too_many_without_a_fence() -> None:
    story = reporting(12.0, 18.0)
    assert_verdict(run(reports(2, 2), story), "unproven: gap", "no fence")
    assert_verdict(run(reports(2, 2), story.fence(40.0, blind=["events"])), "unproven: gap", "sentinel")


def test_a_fence_before_the_last_moment_vouches_for_nothing() -> None:
    story = reporting(12.0).fence(19.0)
    assert_verdict(run(reports(1, 1), story), "unproven: gap", "too early")


def test_two_at_the_same_instant_are_two() -> None:
    assert_verdict(run(reports(2, 2), reporting(15.0, 15.0).fence(40.0)), "conforms", "occurred 2 times")
    assert_verdict(run(requests(2, 2), listening(15.0, 15.0)), "conforms", "occurred 2 times")


@pytest.mark.parametrize(("since_t", "until_t"), [(9.0, 11.0), (14.0, 15.0), (19.0, 21.0)])
def test_a_blind_watch_counts_nothing(since_t: float, until_t: float) -> None:
    story = reporting(12.0)
    story.gap(since_t, until_t, "events")
    for check in (reports(1, 1), reports(2, 2)):
        assert_verdict(run(check, story.fence(40.0)), "unproven: gap", "had a gap")


def test_a_gap_elsewhere_does_not_matter() -> None:
    story = Story()
    story.gap(3.0, 4.0, "events")
    story.sentinel(5.0)
    story.cordon(SINCE_T)
    story.cordon(UNTIL_T, on=False)
    story.gap(25.0, 26.0, "events")
    assert_verdict(run(reports(0, 0), story.fence(40.0)), "conforms")


def test_what_a_watch_delivers_after_a_gap_may_have_come_before_the_first_moment() -> None:
    """A watch that is back delivers at once what happened at unknown times of the gap."""
    story = reporting(11.6)
    story.gap(9.0, 11.5, "events")
    assert_verdict(run(reports(0, 0), story.fence(40.0)), "unproven: gap", "had a gap")


@pytest.mark.parametrize(("since_t", "until_t"), [(8.0, 9.95), (18.0, 19.95)])
def test_an_end_that_a_blind_watch_told_is_not_on_time(since_t: float, until_t: float) -> None:
    """It came at an unknown time of the gap: what is counted may lie before it, or after."""
    story = reporting(9.0, 15.0, 19.0)
    story.gap(since_t, until_t, "nodes")
    assert_verdict(run(reports(2, 2), story.fence(40.0)), "unproven: gap", "had a gap")


# The slack of an end


@pytest.mark.parametrize("t", [9.8, 10.2, 19.8, 20.2])
def test_what_lies_within_the_slack_of_an_end_may_count_or_not(t: float) -> None:
    story = reporting(t, 15.0).fence(40.0)
    assert_verdict(run(reports(1, 1), story), "unproven: gap", "slack of an end")
    assert_verdict(run(reports(2, 2), story), "unproven: gap", "slack of an end")


@pytest.mark.parametrize("t", [9.8, 10.2, 19.8, 20.2])
def test_what_lies_within_the_slack_of_an_end_matters_only_where_it_decides(t: float) -> None:
    story = reporting(t, 15.0).fence(40.0)
    assert_verdict(run(reports(1, 2), story), "conforms")
    assert_verdict(run(reports(0, 0), story), "deviates", "at most 0")
    assert_verdict(run(reports(3, 9), story), "deviates", "at least 3")


# What a source told


def test_what_a_source_told_is_counted_up_to_where_it_was_heard() -> None:
    story = listening(12.0, 18.0, 40.0)
    assert_verdict(run(requests(2, 2), story), "conforms", "occurred 2 times in 30.00 s")
    assert_verdict(run(requests(0, 1), story), "deviates", "at most 1")
    assert_verdict(run(requests(3, 4), story), "deviates", "at least 3")
    assert_verdict(run(requests(0, 0), listening()), "conforms", "occurred 0 times")


def test_a_source_that_was_not_heard_to_the_end_counts_nothing() -> None:
    check = reports(0, 0, SOURCE.request)
    assert_verdict(run(check, reporting().fence(40.0)), "unproven: gap", "was not read")
    assert_verdict(run(check, listening(heard_t=19.0).fence(40.0)), "unproven: gap", "1.0 s too early")
    assert_verdict(run(check, listening(heard_t=21.0).fence(40.0)), "conforms")


def test_another_source_that_was_heard_is_none() -> None:
    story = reporting()
    story.say(HEARD_T, "heard", by=audit(verb="delete").by, error_s=0.0, unsure="", node="", boot_id="")
    assert_verdict(run(reports(0, 0, SOURCE.request), story.fence(40.0)), "unproven: gap", "was not read")
    assert_verdict(run(requests(0, 0), story), "unproven: gap", "was not read")


def test_a_source_that_is_unsure_counts_nothing() -> None:
    story = listening(12.0, unsure="a line was torn")
    for check in (requests(0, 0), requests(1, 1), requests(2, 2)):
        assert_verdict(run(check, story), "unproven: gap", "a line was torn")


def test_a_source_that_was_sure_once_and_is_no_more_counts_nothing() -> None:
    story = listening()
    story.say(40.0, "heard", by=SOURCE.by, error_s=0.0, unsure="a line was torn", node="", boot_id="")
    assert_verdict(run(requests(0, 0), story), "unproven: gap", "a line was torn")


# Missing moments


@pytest.mark.parametrize(("after", "until"), [(UNKNOWN, UNCORDONED), (CORDONED, UNKNOWN)])
def test_a_moment_that_is_missing_leaves_nothing_to_count(after: Moment, until: Moment) -> None:
    story = reporting(12.0)
    check = counted(REPORTED, 1, 1, after=after, until=until)
    assert_verdict(run(check, story), "unproven: gap", "was not recorded", "no fence")
    assert_verdict(run(check, story.fence(40.0)), "unproven: no-anchor", "did not occur")


def test_a_last_moment_from_before_the_first_is_none() -> None:
    check = counted(REPORTED, 0, 0, after=UNCORDONED, until=CORDONED)
    assert_verdict(run(check, reporting().fence(40.0)), "unproven: no-anchor", "did not occur")


def test_a_fault_that_was_not_proven_leaves_nothing_to_count() -> None:
    check = counted(REPORTED, 1, 1, after=moments.fault_step("cut", "injected"), until=UNCORDONED)
    assert_verdict(run(check, reporting(12.0).fence(40.0)), "unproven: not-injected")


# What cannot be counted


@pytest.mark.parametrize(("low", "high"), [(-1, 0), (2, 1), (-2, -1)])
def test_a_range_that_is_none_is_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match=f"{low} to {high} times"):
        reports(low, high)


def test_a_moment_that_is_found_once_cannot_be_counted() -> None:
    check = reports(0, 0, moments.last_heartbeat(NODE, UNKNOWN))
    verdict = judge(CLAIM, check, reporting().fence(40.0).history(), configuration())
    assert_verdict(verdict, "unproven: check-failed", "cannot be counted")


def test_a_resource_that_nobody_watched_cannot_be_counted() -> None:
    story = Story(resources=("nodes", "pods", "leases"))
    story.cordon(SINCE_T)
    story.cordon(UNTIL_T, on=False)
    with pytest.raises(LookupError, match="not recorded: events"):
        run(reports(0, 0), story.fence(40.0))


@pytest.mark.parametrize(("stall_t", "label"), [(15.0, "unproven: host-too-loaded"), (35.0, "conforms")])
def test_a_stall_matters_between_the_moments_only(stall_t: float, label: str) -> None:
    story = reporting(15.0)
    for t in (5.0, 25.0):
        story.say(t, "stall", late_s=0.0)
    story.say(stall_t, "stall", late_s=1.2)
    check = reports(1, 1)
    history = story.fence(40.0).history()
    assert judge(CLAIM, Check.from_json(check.to_json()), history, configuration()).label == label


@pytest.mark.parametrize(
    ("late_s", "label"), [(1.5, "unproven: host-too-loaded"), (0.3, "conforms")], ids=["loaded", "idle"]
)
def test_an_end_that_only_load_leaves_open_is_no_lack_of_evidence(late_s: float, label: str) -> None:
    story = reporting(SINCE_T + 1.2)
    story.say(15.0, "stall", late_s=late_s)
    assert judge(CLAIM, reports(1, 1), story.fence(40.0).history(), configuration()).label == label


def test_an_end_that_is_too_near_on_any_host_lacks_evidence() -> None:
    story = reporting(SINCE_T + 0.1)
    story.say(15.0, "stall", late_s=1.5)
    verdict = judge(CLAIM, reports(1, 1), story.fence(40.0).history(), configuration())
    assert verdict.label == "unproven: gap"


# made


def test_what_is_made_in_a_state_is_found() -> None:
    story = Story()
    story.pod(1.0, node=NODE)
    made = moments.made("pods", POD, NAMESPACE, like=BOUND)
    found = find(story.history(), made)
    assert found is not None
    assert found.t == 1.0
    assert find(story.history(), moments.made("pods", POD, NAMESPACE, like={"spec": {"x": 1}})) is None


def test_what_comes_into_a_state_later_was_not_made_in_it() -> None:
    story = Story()
    story.pod(1.0)
    story.bind(2.0)
    assert find(story.history(), moments.made("pods", POD, NAMESPACE, like=BOUND)) is None
    assert find(story.history(), moments.made("pods", POD, NAMESPACE)) is not None


def test_what_a_list_told_was_not_made() -> None:
    unharmed = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert find(Story().history(), moments.made("nodes", NODE, like=unharmed)) is None


def test_namesakes_are_made_one_after_another() -> None:
    story = Story()
    for t, node in ((1.0, ""), (3.0, NODE), (5.0, NODE)):
        story.pod(t, node=node)
        story.remove(t + 1, "pods", NAMESPACE, POD)
    history = story.history()
    bound = moments.made("pods", POD, NAMESPACE, like=BOUND)
    assert [came.t for came in each(history, moments.made("pods", POD, NAMESPACE))] == [1.0, 3.0, 5.0]
    assert [came.t for came in each(history, bound)] == [3.0, 5.0]
