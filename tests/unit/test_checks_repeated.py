"""Repeated events: counts, orders and weights, bursts, doubling waits, and rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from nodeproof.checks import moments
from nodeproof.checks.checks import remaining_s
from nodeproof.checks.judge import judge
from nodeproof.checks.moments import find, occurrences, recording_began
from nodeproof.checks.repeated import counted, doubled, in_bursts, rate, spaced, writes_more_than
from nodeproof.checks.timing import in_order
from nodeproof.model import window as windows
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.judgment import Check, Judgment, Moment
from nodeproof.model.pod_log import Lost
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext
from nodeproof.report import timeline
from nodeproof.sources import audit
from tests.unit.histories import NAMESPACE, NODE, OTHER, POD, Story, configuration, wall
from tests.unit.sample_checks import CLAIM, CUT, GROUND, TAINTED, UNKNOWN, assert_verdict, run

# Counts, orders and weights of events between two moments, and what leaves them open.


SINCE_T, UNTIL_T, COLLECTED_T = 10.0, 20.0, 30.0
CORDONED, UNCORDONED = moments.cordoned(NODE), moments.uncordoned(NODE)
REPORTED = moments.event_reported("Seen", "Node", NODE, "")
SOURCE = audit(verb="patch", resource="nodes")
GAP = "unproven: gap"
BOUND = {"spec": {"nodeName": NODE}}


def reporting(*times: float) -> Story:
    """Report a node at these times, and cordon it from `SINCE_T` to `UNTIL_T`."""
    story = Story()
    for t in sorted([*times, SINCE_T, UNTIL_T]):
        if t in (SINCE_T, UNTIL_T):
            story.cordon(t, on=t == SINCE_T)
        else:
            story.event(t, "Seen", NODE, kind="Node")
    return story


def reports(low: int, high: int, event: Moment = REPORTED) -> Check:
    return counted(event, low, high, after=CORDONED, until=UNCORDONED)


def listening(*times: float, collected_t: float = COLLECTED_T, lost: Sequence[Lost] = ()) -> Story:
    """Record messages of a source at these times, and their collection."""
    return reporting().tell("patch", *times, by=SOURCE.by).hear(collected_t, SOURCE.by, 0.0, lost)


def requests(low: int, high: int) -> Check:
    return counted(SOURCE.request, low, high, after=recording_began(), until=SOURCE.collected)


@pytest.mark.parametrize(("low", "high"), [(2, 2), (1, 2), (2, 5), (0, 2)])
def test_count_inside_its_range_conforms(low: int, high: int) -> None:
    verdict = run(reports(low, high), reporting(5.0, 12.0, 18.0, 25.0).fence(40.0))
    assert_verdict(verdict, "conforms", "occurred 2 times in 10.00 s")
    assert verdict.measured == Measured(2.0)


@pytest.mark.parametrize(
    ("check", "story", "label", "words"),
    [
        (reports(0, 0), reporting(5.0, 25.0).fence(40.0), "conforms", ["occurred 0 times"]),
        (reports(0, 2), reporting(12.0, 14.0, 16.0), "deviates", ["3 times", "at most 2"]),
        (
            reports(0, 2),
            reporting(12.0, 14.0, 16.0).fence(40.0),
            "deviates",
            ["occurred 3 times", "at most 2"],
        ),
        (reports(2, 3), reporting(12.0), GAP, ["more", "no fence"]),
        (reports(2, 3), reporting(12.0).fence(40.0), "deviates", ["occurred 1 times", "at least 2"]),
        # It may be too many.
        (reports(2, 2), reporting(12.0, 18.0), GAP, ["no fence"]),
        (reports(2, 2), reporting(12.0, 18.0).fence(40.0, blind=["events"]), GAP, ["sentinel"]),
        (reports(1, 1), reporting(12.0).fence(19.0), GAP, ["too early"]),
        (reports(2, 2), reporting(15.0, 15.0).fence(40.0), "conforms", ["occurred 2 times"]),
        # A watch delivers after its gap what happened at unknown times in it.
        (reports(0, 0), reporting(11.6).gap(9.0, 11.5, "events").fence(40.0), GAP, ["had a gap"]),
        (requests(2, 2), listening(15.0, 15.0), "conforms", ["occurred 2 times"]),
        (requests(2, 2), listening(12.0, 18.0, 40.0), "conforms", ["occurred 2 times in 30.00 s"]),
        (requests(0, 1), listening(12.0, 18.0, 40.0), "deviates", ["at most 1"]),
        (requests(3, 4), listening(12.0, 18.0, 40.0), "deviates", ["at least 3"]),
        (requests(0, 0), listening(), "conforms", ["occurred 0 times"]),
    ],
)
def test_events_between_two_moments_are_counted(
    check: Check, story: Story, label: str, words: list[str]
) -> None:
    assert_verdict(run(check, story), label, *words)


def test_gap_outside_the_moments_does_not_matter() -> None:
    story = Story().gap(3.0, 4.0, "events").sentinel(5.0).cordon(SINCE_T).cordon(UNTIL_T, on=False)
    assert_verdict(run(reports(0, 0), story.sentinel(24.5).gap(25.0, 26.0, "events").fence(40.0)), "conforms")


@pytest.mark.parametrize(
    ("since_t", "until_t", "lists"), [(9.0, 11.0, False), (14.0, 15.0, True), (19.0, 21.0, False)]
)
def test_watch_gap_prevents_counting(since_t: float, until_t: float, lists: bool) -> None:
    story = reporting(12.0).gap(since_t, until_t, "events", lists=lists)
    for check in (reports(1, 1), reports(2, 2)):
        assert_verdict(run(check, story.fence(40.0)), GAP, "had a gap")


def test_gap_that_begins_right_after_the_start_prevents_counting() -> None:
    """A watch that fell behind may deliver in its burst what occurred before the start."""
    story = reporting(16.0).sentinel(SINCE_T + 0.2).gap(SINCE_T + 0.3, 15.5, "events").sentinel(17.0)
    assert_verdict(run(reports(0, 0), story.fence(40.0)), GAP, "had a gap")


def test_object_recreated_in_a_state_breaks_an_absence() -> None:
    story = Story().fault(20.0, "planned", "armed", "injected")
    body = story.object("nodes", "", NODE)
    body.pop("metadata")
    body["spec"]["taints"] = [{"key": UNREACHABLE, "effect": "NoExecute"}]
    story.remove(25.0, "nodes", "", NODE).change(27.0, "nodes", "", NODE, body)
    check = counted(TAINTED, 0, 0, after=CUT, until=moments.condition_became(OTHER, "Ready", "Unknown"))
    assert_verdict(run(check, story.condition(60.0, "Unknown", node=OTHER).fence(64.0)), "deviates")


@pytest.mark.parametrize(
    ("created_t", "removed_t", "back_t", "expected"),
    [
        (1.0, 40.0, 50.0, "conforms"),
        (12.0, 40.0, 50.0, GAP),
        (1.0, 5.0, 50.0, GAP),
        (1.0, 13.0, 50.0, GAP),
        (1.0, 13.0, 17.0, GAP),
        (1.0, 5.0, 8.0, "conforms"),
        # It was there all the time, to within the slack.
        (10.1, 40.0, 50.0, "conforms"),
        (1.0, UNTIL_T, 50.0, "conforms"),
    ],
)
def test_count_of_zero_requires_the_object_all_the_time(
    created_t: float, removed_t: float, back_t: float, expected: str
) -> None:
    story = Story()
    deeds: list[tuple[float, Callable[[float], object]]] = [
        (created_t, story.pod),
        (removed_t, lambda t: story.remove(t, "pods", NAMESPACE, POD)),
        (back_t, story.pod),
        (SINCE_T, story.cordon),
        (UNTIL_T, lambda t: story.cordon(t, on=False)),
    ]
    for t, deed in sorted(deeds, key=lambda pair: pair[0]):
        deed(t)
    failed = moments.became("pods", POD, {"status": {"phase": "Failed"}}, NAMESPACE)
    for high in (0, 2):
        assert_verdict(run(reports(0, high, failed), story.fence(60.0)), expected)
    # A sentence about the object itself needs none.
    again = moments.created("pods", "pod-2", NAMESPACE)
    assert_verdict(run(reports(0, 0, again), story), "conforms")


@pytest.mark.parametrize(("back_t", "expected"), [(None, GAP), (15.0, "conforms")])
def test_persistent_state_does_not_prove_absence_of_its_start(back_t: float | None, expected: str) -> None:
    story = Story().condition(5.0, "Unknown").cordon(SINCE_T)
    if back_t is not None:
        story.condition(back_t, "True")
    story.cordon(UNTIL_T, on=False)
    assert_verdict(run(reports(0, 0, UNKNOWN), story.fence(40.0)), expected)


def test_events_of_a_watch_that_resumed_are_counted() -> None:
    story = reporting(12.0).gap(14.0, 15.0, "events").sentinel(15.1)
    assert_verdict(run(reports(1, 1), story.fence(40.0)), "conforms")


@pytest.mark.parametrize(("since_t", "until_t"), [(8.0, 9.95), (18.0, 19.95)])
def test_end_delivered_after_a_gap_has_no_exact_time(since_t: float, until_t: float) -> None:
    """The end occurred at an unknown time in the gap: events may be before or after it."""
    story = reporting(9.0, 15.0, 19.0).gap(since_t, until_t, "nodes")
    assert_verdict(run(reports(2, 2), story.fence(40.0)), GAP, "had a gap")


# The slack of an end


@pytest.mark.parametrize("t", [9.8, 10.2, 19.8, 20.2])
def test_event_within_the_slack_of_an_end_matters_only_if_decisive(t: float) -> None:
    story = reporting(t, 15.0).fence(40.0)
    for times in (1, 2):
        assert_verdict(run(reports(times, times), story), GAP, "slack of an end")
    assert_verdict(run(reports(1, 2), story), "conforms")
    assert_verdict(run(reports(0, 0), story), "deviates", "at most 0")
    assert_verdict(run(reports(3, 9), story), "deviates", "at least 3")


@pytest.mark.parametrize(
    ("t", "expected"), [(9.8, "conforms"), (10.2, GAP), (19.8, GAP), (20.2, GAP), (15.0, "deviates")]
)
def test_event_recorded_before_an_action_occurred_before_it(t: float, expected: str) -> None:
    story = Story().event(t, "Seen", NODE, kind="Node") if t < SINCE_T else Story()
    story.fault(SINCE_T, "planned", "armed", "injected")
    if t > SINCE_T:
        story.event(t, "Seen", NODE, kind="Node")
    story.cordon(UNTIL_T).fence(40.0)
    check = counted(REPORTED, 0, 0, after=CUT, until=CORDONED)
    assert_verdict(run(check, story), expected)
    twice = counted(REPORTED, 1, 1, after=CUT, until=CORDONED)
    assert_verdict(run(twice, story), "conforms" if t == 15.0 else GAP)


def test_source_collected_too_early_counts_nothing() -> None:
    check = reports(0, 0, SOURCE.request)
    assert_verdict(run(check, reporting().fence(40.0)), GAP, "was not read")
    assert_verdict(run(check, listening(collected_t=19.0).fence(40.0)), GAP, "1.0 s too early")
    assert_verdict(run(check, listening(collected_t=21.0).fence(40.0)), "conforms")


def test_collection_of_another_source_does_not_count() -> None:
    story = reporting().hear(COLLECTED_T, audit(verb="delete").by)
    assert_verdict(run(reports(0, 0, SOURCE.request), story.fence(40.0)), GAP, "was not read")
    assert_verdict(run(requests(0, 0), story), GAP, "was not read")


def test_incomplete_source_gives_no_count() -> None:
    torn = [Lost(12.0, 13.0, "a line was torn")]
    for times in range(3):
        assert_verdict(run(requests(times, times), listening(12.0, lost=torn)), GAP, "a line was torn")
    later = listening().hear(40.0, SOURCE.by, 0.0, torn)
    assert_verdict(run(requests(0, 0), later), GAP, "a line was torn")


# Missing moments


@pytest.mark.parametrize(("after", "until"), [(UNKNOWN, UNCORDONED), (CORDONED, UNKNOWN)])
def test_missing_moment_prevents_counting(after: Moment, until: Moment) -> None:
    story = reporting(12.0)
    check = counted(REPORTED, 1, 1, after=after, until=until)
    assert_verdict(run(check, story), GAP, "was not recorded", "no fence")
    assert_verdict(run(check, story.fence(40.0)), "unproven: no-anchor", "did not occur")


def test_last_moment_before_the_first_is_ignored() -> None:
    check = counted(REPORTED, 0, 0, after=UNCORDONED, until=CORDONED)
    assert_verdict(run(check, reporting().fence(40.0)), "unproven: no-anchor", "did not occur")


def test_unproven_fault_prevents_counting() -> None:
    check = counted(REPORTED, 1, 1, after=moments.fault_step("cut", "injected"), until=UNCORDONED)
    assert_verdict(run(check, reporting(12.0).fence(40.0)), "unproven: not-injected")


# Uncountable moments


@pytest.mark.parametrize(("low", "high"), [(-1, 0), (2, 1), (-2, -1)])
def test_invalid_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match=f"invalid range: {low} to {high}"):
        reports(low, high)


def test_unique_moment_cannot_be_counted() -> None:
    check = reports(0, 0, moments.last_heartbeat(NODE, UNKNOWN))
    verdict = judge(CLAIM, check, reporting().fence(40.0).history(), configuration())
    assert_verdict(verdict, "unproven: check-failed", "cannot be counted")


@pytest.mark.parametrize(("stall_t", "label"), [(15.0, "unproven: host-too-loaded"), (35.0, "conforms")])
def test_stall_matters_only_between_the_moments(stall_t: float, label: str) -> None:
    story = reporting(15.0)
    for t in (5.0, 25.0):
        story.say(t, "stall", late_s=0.0)
    story.say(stall_t, "stall", late_s=1.2)
    check = reports(1, 1)
    history = story.fence(40.0).history()
    assert judge(CLAIM, Check.from_json(check.to_json()), history, configuration()).label == label


@pytest.mark.parametrize(
    ("t", "late_s", "expected"),
    [(11.2, 1.5, "unproven: host-too-loaded"), (11.2, 0.3, "conforms"), (10.1, 1.5, GAP)],
    ids=["loaded", "idle", "open on any host"],
)
def test_uncertain_end_on_a_loaded_host_is_host_too_loaded(t: float, late_s: float, expected: str) -> None:
    story = reporting(t).say(15.0, "stall", late_s=late_s).fence(40.0)
    assert judge(CLAIM, reports(1, 1), story.history(), configuration()).label == expected


# made


CREATED = moments.created("pods", POD, NAMESPACE)
CREATED_BOUND = moments.created("pods", POD, NAMESPACE, like=BOUND)


def test_object_reaching_a_state_later_was_not_created_in_it() -> None:
    history = Story().pod(1.0).bind(2.0).history()
    assert find(history, CREATED_BOUND) is None
    assert find(history, CREATED) is not None


def test_recreated_objects_are_separate_creations() -> None:
    story = Story()
    for t, node in ((1.0, ""), (3.0, NODE), (5.0, NODE)):
        story.pod(t, node=node).remove(t + 1, "pods", NAMESPACE, POD)
    history = story.history()
    assert [came.t for came in occurrences(history, CREATED)] == [1.0, 3.0, 5.0]
    assert [came.t for came in occurrences(history, CREATED_BOUND)] == [3.0, 5.0]


def cordoning() -> Story:
    return Story().status(5.0).cordon(10.0).cordon(20.0, on=False)


def test_write_with_the_lower_revision_is_the_first() -> None:
    assert_verdict(run(in_order(CORDONED, UNCORDONED), cordoning().fence(30.0)), "conforms", "at revision")
    assert_verdict(run(in_order(UNCORDONED, CORDONED), cordoning().fence(30.0)), "deviates", "at revision")


def test_order_of_a_missing_event_is_unknown() -> None:
    removed = moments.removed("nodes", NODE)
    for first, then in ((CORDONED, removed), (removed, CORDONED)):
        assert_verdict(
            run(in_order(first, then), cordoning().fence(30.0)), "unproven: no-anchor", "did not occur"
        )


STATUS_REPORTED = moments.changed("nodes", NODE, "status.conditions[].lastHeartbeatTime")
RENEWED = moments.changed("leases", NODE, "spec.renewTime", "kube-node-lease")


def heavier(times: float) -> Check:
    return writes_more_than(STATUS_REPORTED, RENEWED, times, after=CORDONED, until=UNCORDONED)


def weighing(reports: int, renewals: int, managed: Sequence[Mapping[str, str]] = ()) -> Story:
    """Write this many of both between a cordon and its end, and one of each before and after."""
    recording = Story().status(5.0)
    metadata = {"managedFields": managed} if managed else {}
    lease = {"metadata": metadata, "spec": {"renewTime": wall(5.5)}}
    recording.change(5.5, "leases", "kube-node-lease", NODE, lease).cordon(SINCE_T)
    for at in range(reports):
        recording.status(11.0 + at)
    for at in range(renewals):
        recording.renew(11.5 + at)
    return recording.cordon(UNTIL_T, on=False).status(25.0).renew(25.5)


def test_byte_ratio_is_proportional_to_the_number_of_writes() -> None:
    few, many = (run(heavier(0.01), weighing(count, 4).fence(30.0)).measured for count in (2, 8))
    assert few is not None
    assert many is not None
    assert float(many.value) == pytest.approx(4 * float(few.value), rel=0.02)


def test_bytes_of_managed_fields_are_not_counted() -> None:
    plain, managed = weighing(4, 4), weighing(4, 4, managed=[{"manager": "x" * 5000}])
    assert run(heavier(1.1), managed.fence(30.0)).measured == run(heavier(1.1), plain.fence(30.0)).measured


@pytest.mark.parametrize(
    ("times", "story", "expected", "word"),
    [
        (1.1, weighing(4, 4).fence(30.0), "conforms", "in 4 writes beside"),
        (1000, weighing(4, 4).fence(30.0), "deviates", "at least 1000 times as much expected"),
        (1.1, weighing(4, 0).fence(30.0), "unproven: no-anchor", "0"),
        (1.1, weighing(4, 4), GAP, "no fence"),
        (1.1, weighing(4, 4).gap(14.0, 16.0, "leases").fence(30.0), GAP, "leases"),
    ],
)
def test_bytes_of_all_writes_are_compared(times: float, story: Story, expected: str, word: str) -> None:
    assert_verdict(run(heavier(times), story), expected, word)


def test_moment_without_a_change_is_refused() -> None:
    odd = writes_more_than(CORDONED, RENEWED, 2, after=CORDONED, until=RENEWED)
    with pytest.raises(LookupError, match="not a change of one object"):
        run(odd, weighing(4, 4).fence(30.0))
    with pytest.raises(ValueError, match="times must be positive"):
        writes_more_than(STATUS_REPORTED, RENEWED, 0, after=RENEWED, until=RENEWED)


# Bursts of tries: conforming and other histories, and ambiguous ones.


STEP_S, PERIOD_S = 0.02, 2.05
PUT, GET = audit(verb="update", resource="leases"), audit(verb="get", resource="leases")
PERIOD = windows.formula("period", "R", "R - slack", "1.04R + 0.5 + slack")
ENDS: Mapping[str, Any] = {"after": CORDONED, "until": UNCORDONED}
FIVE = ("put",) * 5
TEN = (*FIVE, "get", *FIVE)
BEGIN_AT = (9.5, 11.6, 13.7, 15.8, 17.9, 19.98)
"""The first and the last burst are cut off by an end."""
EXACT = WindowContext(configuration(), 0.01)


def bursting(
    burst: Sequence[str] = FIVE,
    begin_at: Sequence[float] = BEGIN_AT,
    *,
    odd: Sequence[str] | None = None,
    also: Sequence[float] = (),
) -> Story:
    """Record bursts of requests, `odd` as the third; a node is cordoned from `SINCE_T` to `UNTIL_T`."""
    story = Story().cordon(SINCE_T).cordon(UNTIL_T, on=False)
    for number, begin_t in enumerate(begin_at):
        for place, what in enumerate(odd if odd is not None and number == 2 else burst):
            story.tell(what, begin_t + place * STEP_S, by=(PUT if what == "put" else GET).by)
    story.tell("put", *also, by=PUT.by)
    for source in (PUT, GET):
        story.hear(COLLECTED_T, source.by, 0.0)
    return story.fence(COLLECTED_T + 1)


def fives(at_least: int = 3, times: int = 5, lasting_s: float | None = None) -> Check:
    return in_bursts((PUT.request, times), apart=PERIOD, at_least=at_least, lasting_s=lasting_s, **ENDS)


def tens(at_least: int = 3, lasting_s: float | None = None) -> Check:
    parts = ((PUT.request, 5), (GET.request, 1), (PUT.request, 5))
    return in_bursts(*parts, apart=PERIOD, at_least=at_least, lasting_s=lasting_s, **ENDS)


def test_bursts_of_the_expected_size_conform() -> None:
    assert_verdict(run(fives(), bursting()), "conforms", "4 bursts of 5 x told(")
    assert_verdict(run(tens(), bursting(TEN)), "conforms", "4 bursts of 5 x told(", ", 1 x told(")


@pytest.mark.parametrize("times", [3, 4, 6])
def test_bursts_of_fewer_or_more_deviate(times: int) -> None:
    assert_verdict(
        run(fives(), bursting(("put",) * times)), "deviates", f"a burst of {times} x", "expected 5 x"
    )
    assert_verdict(run(fives(), bursting(odd=("put",) * times)), "deviates", f"a burst of {times} x")


@pytest.mark.parametrize(
    "odd",
    [
        FIVE * 2,
        (*FIVE, "get", *FIVE[1:]),
        (*FIVE, "get", *FIVE, "put"),
        ("get", *FIVE),
        (*FIVE[1:], "get", *FIVE, "put"),
        (*FIVE, "get", "get", *FIVE),
    ],
    ids=["no look", "fewer after it", "more after it", "none before it", "another order", "two looks"],
)
def test_bursts_with_other_events_deviate(odd: Sequence[str]) -> None:
    assert_verdict(run(tens(), bursting(TEN, odd=odd)), "deviates", "a burst of")


@pytest.mark.parametrize(
    ("begin_at", "word"),
    [
        ((11.0, 12.5, 14.6, 16.7, 18.8), "from one burst to the next"),
        ((11.0, 13.05, 15.1, 16.6, 18.65), "from one burst to the next"),
        ((15.0, 17.05, 19.1), "no tries for"),
        ((11.0, 13.05, 15.1), "no tries for"),
        ((11.0, 13.05, 16.1, 18.15), "no tries for"),
        ((), "no tries for"),
    ],
)
def test_bursts_too_close_too_late_or_stopping_deviate(begin_at: Sequence[float], word: str) -> None:
    assert_verdict(run(fives(), bursting(begin_at=begin_at)), "deviates", word)


def test_bursts_with_waits_between_their_tries_deviate() -> None:
    """Five tries last four steps, ten with a look between them ten."""
    begin_at = (10.5, 12.8, 15.1, 17.4, 19.7)
    for check, burst in ((fives, FIVE), (tens, TEN)):
        story, lasts_s = bursting(burst, begin_at), STEP_S * (len(burst) - 1)
        assert_verdict(run(check(lasting_s=lasts_s), story, EXACT), "conforms", "bursts of")
        assert_verdict(run(check(lasting_s=lasts_s / 10), story, EXACT), "deviates", "a burst lasted")


def test_long_silence_deviates_despite_slack() -> None:
    loaded = WindowContext(configuration(), 1.5)
    assert_verdict(run(fives(), bursting(begin_at=(17.0,)), loaded), "deviates", "no tries for 7.0 s")


def test_burst_cut_off_by_an_end_is_ignored() -> None:
    """Half of it is before the first moment, or too near to it to tell."""
    for cut_t in (9.94, 10.1):
        begin_at = (cut_t, *(cut_t + number * PERIOD_S for number in range(1, 5)))
        assert_verdict(run(fives(4), bursting(begin_at=begin_at)), "conforms", "4 bursts")
        assert_verdict(run(fives(5), bursting(begin_at=begin_at)), "unproven: gap", "4 complete bursts")


def test_ambiguous_pause_proves_nothing() -> None:
    """Its two parts are as large as one burst."""
    odd = bursting(begin_at=(10.5, 15.7, 17.8), also=(12.6, 12.62, 13.62, 13.64, 13.66))
    assert_verdict(run(fives(), odd), "unproven: host-too-loaded", "are one burst")


def test_bursts_too_large_or_too_frequent_in_any_split_deviate() -> None:
    odd = bursting(begin_at=(10.5, 12.6, 13.6, 15.7, 17.8))
    assert_verdict(run(fives(), odd), "deviates", "a burst of 10 x")
    often = bursting(begin_at=[9.5 + 1.03 * number for number in range(11)])
    assert_verdict(run(fives(), often), "deviates", "a burst of")


def test_window_that_also_fits_half_or_double_proves_nothing() -> None:
    assert_verdict(run(fives(), bursting(), WindowContext(configuration(), 1.5)), "unproven: host-too-loaded")
    wide = windows.formula("period", "R", "R - slack", "3R + slack")
    assert_verdict(
        run(in_bursts((PUT.request, 5), apart=wide, at_least=3, **ENDS), bursting()), "unproven: scaled"
    )


def test_stall_inside_a_burst_excuses_its_two_halves() -> None:
    story = bursting(begin_at=(10.5, 12.6, 17.9), also=(14.4, 14.42, 15.82, 15.84, 15.86))
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "deviates"
    story.say(15.0, "stall", late_s=0.5)
    assert judge(CLAIM, fives(), story.history(), configuration()).label == "unproven: host-too-loaded"


@pytest.mark.parametrize("parts", [(), ((PUT.request, 0),)])
def test_empty_burst_is_refused(parts: Sequence[tuple[object, int]]) -> None:
    with pytest.raises(ValueError, match="each burst needs at least one event"):
        in_bursts(*parts, apart=PERIOD, at_least=1, **ENDS)  # type: ignore[arg-type]


# Doubling waits: conforming and other histories, and ambiguous ones.


CREATIONS = audit(verb="create", resource="nodes")
TRIES_SINCE_T, TRIES_UNTIL_T, TRIES_COLLECTED_T = 10.0, 48.0, 60.0
GROWING = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
TRIED = (*GROWING, 7.0, 7.0, 7.0)


def trying(waits: Sequence[float] = TRIED, first_t: float = TRIES_SINCE_T + 0.1) -> Story:
    """Record tries with these waits; a node is cordoned from `TRIES_SINCE_T` to `TRIES_UNTIL_T`."""
    story = Story().cordon(TRIES_SINCE_T).cordon(TRIES_UNTIL_T, on=False)
    story.tell("create", *accumulate([first_t, *waits]), by=CREATIONS.by)
    return story.hear(TRIES_COLLECTED_T, CREATIONS.by, 0.0).fence(TRIES_COLLECTED_T + 1)


def doubling(at_least: int = 8, first_s: float = 0.2, most_s: float = 7.0, takes_s: float = 1.0) -> Check:
    return doubled(CREATIONS.request, first_s, most_s, takes_s=takes_s, at_least=at_least, **ENDS)


@pytest.mark.parametrize(("check", "until_t"), [(fives(), UNTIL_T), (doubling(), TRIES_UNTIL_T)])
def test_gap_at_an_end_of_tries_proves_nothing(check: Check, until_t: float) -> None:
    story = Story().cordon(SINCE_T).gap(12.0, 13.0, "nodes").cordon(until_t, on=False)
    assert_verdict(run(check, story.fence(TRIES_COLLECTED_T)), GAP, "had a gap")


NEVER: Mapping[str, Any] = {**ENDS, "after": UNKNOWN}
UNREAD = audit(verb="delete").request


def test_tries_without_an_anchor_or_a_collection_prove_nothing() -> None:
    anchorless = in_bursts((PUT.request, 5), apart=PERIOD, at_least=3, **NEVER)
    assert_verdict(run(anchorless, bursting()), "unproven: no-anchor")
    anchorless = doubled(CREATIONS.request, 0.2, 7, takes_s=1, at_least=8, **NEVER)
    assert_verdict(run(anchorless, trying()), "unproven: no-anchor")
    unread = in_bursts((PUT.request, 5), (UNREAD, 1), apart=PERIOD, at_least=3, **ENDS)
    assert_verdict(run(unread, bursting(begin_at=())), GAP, "was not read")
    unread = doubled(UNREAD, 0.2, 7, takes_s=1, at_least=8, **ENDS)
    assert_verdict(run(unread, trying()), GAP, "was not read")


def test_doubling_waits_up_to_the_maximum_conform() -> None:
    verdict = run(doubling(), trying())
    assert_verdict(verdict, "conforms", "waits of 0.200, 0.400, 0.800, 1.600, 3.200, 6.400, 7.000, 7.000")
    assert verdict.measured == Measured(9.0, "waits")


def test_duration_of_a_try_is_tolerated() -> None:
    assert_verdict(run(doubling(), trying([wait + 0.6 for wait in TRIED[:-1]])), "conforms")


@pytest.mark.parametrize(
    ("waits", "word"),
    [
        ((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0), "wait 3 "),
        ((0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0, 7.0), "wait 4 "),
        ((*GROWING, 12.8), "wait 7 "),
        ((*GROWING[:5], 3.5, 3.5, 3.5), "wait 6 "),
        ((7.0, 7.0, 7.0, 7.0), "wait 1 "),
        ((*GROWING, 7.0, 7.0, 0.0), "wait 9 "),
        ((0.2, 0.4, 0.6, 0.8, 1.0, 1.2), "wait 4 "),
    ],
    ids=["from half", "from double", "to double", "to half", "all the longest", "twice", "by addition"],
)
def test_other_waits_deviate(waits: Sequence[float], word: str) -> None:
    assert_verdict(run(doubling(), trying(waits)), "deviates", word)


def test_tries_that_stop_deviate() -> None:
    assert_verdict(
        run(doubling(), trying(GROWING)), "deviates", "occurred 7 times", "none in the last 25.3 s"
    )
    assert_verdict(run(doubling(), trying(first_t=TRIES_UNTIL_T + 1)), "deviates", "occurred 0 times")


def test_too_few_tries_that_continue_prove_nothing() -> None:
    assert_verdict(run(doubling(12), trying()), "unproven: gap", "need 13")


def test_waits_that_also_fit_half_or_double_prove_nothing() -> None:
    """Too few do not reach the maximum; tries that take longer than that prove nothing."""
    assert_verdict(run(doubling(3), trying()), "unproven: scaled", "half or double")
    assert_verdict(run(doubling(takes_s=7.5), trying()), "unproven: scaled")
    assert_verdict(
        run(doubling(), trying(), WindowContext(configuration(), 6.0)), "unproven: host-too-loaded"
    )


def test_stall_excuses_a_long_wait() -> None:
    waits = (*GROWING[:5], 6.4 + 2.0, 7.0, 7.0)
    story = trying(waits)
    assert judge(CLAIM, doubling(), story.history(), configuration()).label == "deviates"
    for t in (10.0, 30.0):
        story.say(t, "stall", late_s=0.0)
    story.say(20.0, "stall", late_s=1.2)
    assert judge(CLAIM, doubling(), story.history(), configuration()).label == "unproven: host-too-loaded"


@pytest.mark.parametrize(("first_s", "most_s"), [(0.0, 7.0), (7.0, 7.0), (8.0, 7.0)])
def test_constant_waits_are_refused(first_s: float, most_s: float) -> None:
    with pytest.raises(ValueError, match="need 0 < first_s < most_s"):
        doubling(first_s=first_s, most_s=most_s)


# Rates of taints, stopped eviction, and moments of several nodes


RATES_SINCE_T, RATES_UNTIL_T, FENCE_T = 10.0, 30.0, 40.0
OTHER_CORDONED, OTHER_UNCORDONED = moments.cordoned(OTHER), moments.uncordoned(OTHER)
NODES = tuple(f"node-{number}" for number in range(1, 10))
WRITTEN = moments.no_execute_written(*NODES)
STOPPED = windows.formula("negative", "4", "2", "6")


def tainted(story: Story, t: float, node: str, added: str = "", key: str = UNREACHABLE) -> None:
    body = story.object("nodes", "", node)
    body["spec"]["taints"] = [{"key": key, "effect": "NoExecute", "timeAdded": added or str(t)}]
    story.change(t, "nodes", "", node, body)


def evicting(*times: float) -> Story:
    """Taint one node after the other at these times; `OTHER` is cordoned from `SINCE_T` to `UNTIL_T`."""
    story, left = Story(NODES), iter(name for name in NODES if name != OTHER)
    for t in sorted([*times, RATES_SINCE_T, RATES_UNTIL_T]):
        if t in (RATES_SINCE_T, RATES_UNTIL_T):
            story.cordon(t, OTHER, on=t == RATES_SINCE_T)
        else:
            tainted(story, t, next(left))
    return story


def swapped(story: Story, t: float, node: str) -> None:
    """Swap one taint for another, like a pass of the limiter: add first, then remove.

    Source: pkg/controller/util/node: SwapNodeControllerTaint.
    """
    body = story.object("nodes", "", node)
    new = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": str(t)}
    for number, taints in enumerate(([*body["spec"]["taints"], new], [new])):
        body["spec"]["taints"] = taints
        story.change(t + 0.05 * number, "nodes", "", node, body)


def every_two_seconds(at_least: int = 2, event: Moment = WRITTEN) -> Check:
    return spaced(event, windows.spacing(), at_least=at_least, after=OTHER_CORDONED, until=OTHER_UNCORDONED)


def test_taints_at_the_expected_rate_conform_and_report_it() -> None:
    verdict = run(every_two_seconds(), evicting(9.0, 11.0, 13.0, 15.1, 17.1).fence(FENCE_T))
    assert_verdict(
        verdict, "conforms", "4 occurrences, 2.000 to 2.100 s apart", "0.492/s, within [0.469, 0.517]"
    )
    assert verdict.measured is not None
    assert verdict.measured.value == pytest.approx(6.1 / 3)


@pytest.mark.parametrize(
    ("at_least", "story", "label", "word"),
    [
        # More of them, or half or double the rate.
        (2, evicting(11.0, 13.0, 14.0, 16.0).fence(FENCE_T), "deviates", "1.000 s after the previous"),
        (2, evicting(11.0, 13.0, 17.0, 19.0).fence(FENCE_T), "deviates", "4.000 s after the previous"),
        (2, evicting(11.0, 11.0, 13.0).fence(FENCE_T), "deviates", "0.000 s after the previous"),
        (2, evicting(11.0, 16.0, 21.0).fence(FENCE_T), "deviates", "5.000 s after the previous"),
        (3, evicting(11.0, 13.0).fence(FENCE_T), "deviates", "none in the last 17.0 s"),
        (3, evicting(27.0, 29.0).fence(FENCE_T), GAP, "need 4"),
        (3, evicting().fence(FENCE_T), "deviates", "occurred 0 times"),
        (2, evicting(11.0, 13.0, 15.0), GAP, "no fence"),
        (2, evicting(11.0, 13.0), GAP, "no fence"),
        (2, evicting(11.0, 13.0, 15.0).gap(18.0, 19.0, "nodes", lists=True).fence(FENCE_T), GAP, "had a gap"),
    ],
)
def test_taints_at_another_rate_deviate_and_few_prove_nothing(
    at_least: int, story: Story, label: str, word: str
) -> None:
    assert_verdict(run(every_two_seconds(at_least), story), label, word)


def test_taint_written_twice_counts_twice_and_removal_does_not_count() -> None:
    story = Story(NODES)
    for t, added in ((11.0, "a"), (12.0, "a"), (13.0, "b")):
        tainted(story, t, NODE, added)
    story.untaint(14.0)
    tainted(story, 15.0, "node-3", key=NOT_READY)
    tainted(story, 16.0, "node-4", key="nodeproof.dev/own")
    came = [(event.t, event.detail["name"]) for event in occurrences(story.history(), WRITTEN)]
    assert came == [(11.0, NODE), (13.0, NODE), (15.0, "node-3")]


def test_recording_continues_until_there_are_enough_taints() -> None:
    check = every_two_seconds(2)
    assert remaining_s(check, Story(NODES).history(), GROUND, 5.0) is None
    assert remaining_s(check, evicting(11.0, 13.0).history(), GROUND, 14.0) == pytest.approx(4 * 2.9 - 4)
    assert remaining_s(check, evicting(11.0, 13.0, 15.0).history(), GROUND, 16.0) == 0.0


def test_single_taint_has_no_rate() -> None:
    with pytest.raises(ValueError, match="at least two occurrences"):
        rate([1.0], 0.1)
    assert rate([0.0, 2.0, 4.0], 0.5) == (0.5, 2 / 4.5, 2 / 3.5)


def test_stopped_eviction_is_proven_by_waiting_nodes() -> None:
    none = WRITTEN.never_after(OTHER_CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0, 11.0).fence(FENCE_T)), "conforms", "from 2.00 s on", "for 4.00 s")
    assert_verdict(run(none, evicting(9.0, 14.0).fence(FENCE_T)), "deviates", "4.000 s after")
    assert_verdict(run(none, evicting(9.0, 12.1).fence(FENCE_T)), "unproven: gap", "within the slack")
    everyone = evicting(*(1.0 + number for number in range(8)))
    tainted(everyone, 10.5, OTHER)
    assert_verdict(run(none, everyone.fence(FENCE_T)), "unproven: gap", "all of them already")


def test_stopped_eviction_of_a_missing_node_is_unproven() -> None:
    none = moments.no_execute_written(NODE, "nobody").never_after(OTHER_CORDONED, STOPPED)
    assert_verdict(run(none, evicting(9.0).fence(FENCE_T)), "unproven: gap", "nobody did not exist")
    with pytest.raises(LookupError, match="no nodes are named"):
        run(moments.no_execute_written().never_after(OTHER_CORDONED, STOPPED), evicting(9.0).fence(FENCE_T))


def test_all_of_occurs_at_the_last_of_its_parts() -> None:
    all_lost = moments.all_of(UNKNOWN, moments.condition_became(OTHER, "Ready", "Unknown"))
    story = Story().condition(12.0, "Unknown", OTHER)
    assert find(story.history(), all_lost) is None
    event = find(story.condition(15.0, "Unknown").history(), all_lost)
    assert event is not None
    assert event.t == 15.0
    assert moments.resources(all_lost) == ("nodes",)


def test_first_after_ignores_earlier_occurrences() -> None:
    story = evicting(9.0, 12.0)
    following = moments.first_after(WRITTEN, after=OTHER_CORDONED)
    event = moments.find(story.history(), following)
    assert event is not None
    assert event.t == 12.0
    assert moments.find(Story(NODES).history(), following) is None


def test_rate_picture_shows_each_judgment_once(tmp_path: Path) -> None:
    history = evicting(9.0, 11.0, 13.0, 15.1).fence(FENCE_T).history()
    check, few = every_two_seconds(), every_two_seconds(event=moments.no_execute_written("node-9"))
    judged = [
        (Judgment(name, check), run(check, history)) for name, check in (("a.b", check), ("a.c", check))
    ]
    (curve,) = timeline.rates(history, [*judged, (Judgment("a.d", few), run(few, history))])
    assert (curve.claim, curve.outcome) == ("a.b", "conforms")
    assert [round(t, 3) for t in curve.times] == [0.0, 2.0, 4.1]
    assert curve.low_s == pytest.approx(1.7)
    assert curve.high_s == pytest.approx(2.9)

    assert timeline.render_rates(history, judged, tmp_path / "rates.svg") == tmp_path / "rates.svg"
    assert "seconds after the first" in (tmp_path / "rates.svg").read_text()
    assert timeline.render_rates(history, [], tmp_path / "none.svg") is None


def test_small_count_on_a_loaded_host_is_uncertain_and_a_large_one_not() -> None:
    loaded = WindowContext(configuration(), 0.8)
    few = evicting(11.0, 13.0).fence(FENCE_T)
    assert_verdict(run(every_two_seconds(1), few, loaded), "unproven: host-too-loaded", "too uncertain")
    assert_verdict(run(every_two_seconds(), evicting(11.0, 13.0, 15.0).fence(FENCE_T), loaded), "conforms")


def test_taint_swap_in_one_pass_counts_once() -> None:
    story, nodes = Story(NODES), [name for name in NODES if name != OTHER][:4]
    for name in nodes:
        tainted(story, 1.0, name, key=NOT_READY)
    story.cordon(RATES_SINCE_T)
    for number, name in enumerate(nodes):
        swapped(story, 11.0 + 2.1 * number, name)
    story.cordon(RATES_UNTIL_T, on=False)
    story.fence(FENCE_T)
    rate_of_all = spaced(WRITTEN, windows.spacing(), at_least=2, **ENDS)
    assert_verdict(run(rate_of_all, story), "conforms", "4 occurrences, 2.100 to 2.100 s apart")
    assert_verdict(run(counted(WRITTEN, 4, 4, **ENDS), story), "conforms")
