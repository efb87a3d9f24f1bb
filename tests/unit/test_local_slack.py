"""A stall or late sentinel affects only evidence near it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeproof.checks import moments, observations
from nodeproof.checks.judge import judge, undecided_s
from nodeproof.model import window as windows
from nodeproof.model.judgment import Check
from nodeproof.model.slack import LAB, Span, calmest_s, late_anchor_s, slack_s
from tests.history_mutations import revised
from tests.unit.histories import GRACE_S, NODE, POD, Story, configuration, last_renewal_t, partition
from tests.unit.sample_checks import (
    CLAIM,
    DETECTION,
    EVICTION,
    RENEWALS,
    STAYS,
    TAINT,
    UNKNOWN,
    recovered,
    renewing,
)

PERIOD_S, LATE_S = 2.0, 4.0
UNKNOWN_T, EVICTED_T = 31.4, 41.7
"""Approximate times at which the node of `partition` becomes Unknown and its pod leaves."""
UNKNOWN_ON_TIME_T = last_renewal_t() + GRACE_S + 0.6
CONFORMS, TOO_LOADED = "conforms", "unproven: host-too-loaded"
LOCKED = observations.listed("locks", NODE, "kubelet", UNKNOWN, moments.pod_deletion("nodeproof", POD))
LIVES = observations.stays_alive(POD, UNKNOWN, moments.pod_deletion("nodeproof", POD))


def measured(story: Story, until_t: float = 89.0) -> Story:
    """Add measurements of an idle host to the whole history."""
    for number in range(1, int(until_t / PERIOD_S)):
        story.sentinel(number * PERIOD_S, 0.01)
        story.say(number * PERIOD_S + 0.02, "stall", late_s=0.005)
    return story


def label(story: Story, check: Check) -> str:
    return judge(CLAIM, check, revised(story.fence(90.0).history()), configuration()).label


def stalled(story: Story, until_t: float) -> Story:
    story.say(until_t, "stall", late_s=LATE_S)
    return story


def late_sentinel(story: Story, until_t: float) -> Story:
    story.sentinel(until_t - LATE_S, LATE_S)
    return story


def lab_stalled(story: Story, until_t: float) -> Story:
    story.say(until_t, "stall", late_s=LATE_S, by=LAB)
    return story


@pytest.mark.parametrize("disturb", [stalled, lab_stalled, late_sentinel])
@pytest.mark.parametrize(
    ("check", "until_t", "expected"),
    [
        (DETECTION, last_renewal_t() + 1.0, TOO_LOADED),
        (DETECTION, 27.0, CONFORMS),
        (DETECTION, UNKNOWN_T, TOO_LOADED),
        (DETECTION, UNKNOWN_T + LATE_S - 0.5, TOO_LOADED),
        (DETECTION, UNKNOWN_T + LATE_S + 5.0, CONFORMS),
        (TAINT, 27.0, CONFORMS),
        (TAINT, UNKNOWN_T + 0.3, TOO_LOADED),
        (TAINT, 38.0, CONFORMS),
        (EVICTION, 27.0, CONFORMS),
        (EVICTION, 38.0, CONFORMS),
        (EVICTION, EVICTED_T, TOO_LOADED),
    ],
)
def test_time_is_too_loaded_if_its_anchor_or_event_is_affected(
    disturb: object, check: Check, until_t: float, expected: str
) -> None:
    assert callable(disturb)
    assert label(disturb(measured(partition()), until_t), check) == expected


@pytest.mark.parametrize(("until_t", "expected"), [(26.0, CONFORMS), (33.0, TOO_LOADED), (41.5, CONFORMS)])
def test_absence_is_too_loaded_if_its_window_is_affected(until_t: float, expected: str) -> None:
    assert label(stalled(measured(recovered()), until_t), STAYS) == expected


@pytest.mark.parametrize("until_t", [6.0, 15.0, 60.0])
def test_count_is_too_loaded_if_any_part_is_affected(until_t: float) -> None:
    assert label(measured(renewing(until_t=89.5)), RENEWALS) == CONFORMS
    assert label(stalled(measured(renewing(until_t=89.5)), until_t), RENEWALS) == TOO_LOADED


@pytest.mark.parametrize(
    ("until_t", "expected"), [(26.0, "deviates"), (32.0, TOO_LOADED), (60.0, "deviates")]
)
def test_missing_event_is_too_loaded_if_its_window_is_affected(until_t: float, expected: str) -> None:
    story = Story().fault(20.0, "planned", "armed", "injected").condition(UNKNOWN_T, "Unknown")
    assert label(stalled(measured(story), until_t), TAINT) == expected


@pytest.mark.parametrize("check", [LOCKED, LIVES])
@pytest.mark.parametrize(("until_t", "expected"), [(26.0, CONFORMS), (36.0, TOO_LOADED), (49.0, CONFORMS)])
def test_persistent_state_is_too_loaded_if_its_span_is_affected(
    check: Check, until_t: float, expected: str
) -> None:
    story = measured(partition()).tell("started", 2.0).beats(2.0, 80.0).hear(85.0)
    story.look(35.0, "kubelet", id="look")
    assert label(stalled(story, until_t), check) == expected


@pytest.mark.parametrize("check", [LOCKED, LIVES])
@pytest.mark.parametrize(("sentinel_t", "expected"), [(41.0, CONFORMS), (34.0, TOO_LOADED)])
def test_disturbances_of_a_state_count_together_only_if_near(
    check: Check, sentinel_t: float, expected: str
) -> None:
    story = measured(partition()).tell("started", 2.0).beats(2.0, 80.0).hear(85.0)
    story.look(35.0, "kubelet", id="look").say(32.5, "stall", late_s=0.6, by=LAB)
    assert label(story.sentinel(sentinel_t - 0.35, 0.35), check) == expected


def test_late_anchor_has_the_watch_latency_of_one_event() -> None:
    story = measured(Story()).sentinel(30.0, 0.12).say(30.0, "stall", late_s=0.3, by=LAB)
    late_s = late_anchor_s(revised(story.history()), configuration(), Span.at(30.0))
    assert late_s == pytest.approx(0.1 + 0.3 + 0.005)


def test_calm_measurement_after_a_stall_does_not_hide_it() -> None:
    """The whole host was suspended from 10.5 to 13.5, and the cluster had to catch up."""
    story = measured(Story()).say(13.5, "stall", late_s=3.0).say(13.6, "stall", late_s=0.0)
    for t, touched in ((8.0, False), (9.0, True), (12.0, True), (13.7, True), (15.0, True), (16.0, False)):
        assert (slack_s(story.history(), configuration(), [Span.at(t)]) > 3.0) is touched, t


@pytest.mark.parametrize(("late_s", "expected"), [(1.2, TOO_LOADED), (0.2, "deviates")])
def test_stall_between_anchor_and_event_may_have_delayed_the_event(late_s: float, expected: str) -> None:
    story = measured(partition(eviction_s=14.0)).say(38.0, "stall", late_s=late_s)
    assert label(story, EVICTION) == expected


def test_sentinel_counts_from_its_first_sending() -> None:
    story = Story()
    sent = {"nodes": 4.0, "pods": 9.0}
    story.say(9.5, "sentinel", value="s", sent_t=sent, latency_s={"nodes": 0.1, "pods": 0.5})
    story.say(20.0, "sentinel", value="t", sent_t={"nodes": 19.0}, latency_s={"nodes": 1.0})
    base = slack_s(story.history(), configuration(), [])
    assert slack_s(story.history(), configuration(), [Span.at(3.0)]) - base == pytest.approx(2 * 0.48)
    assert slack_s(story.history(), configuration(), [Span.at(10.0)]) - base == pytest.approx(2 * 0.98)


def test_unmeasured_time_uses_the_slack_of_both_neighbours() -> None:
    story = Story()
    for t, took in ((10.0, 0.1), (20.0, 0.3), (30.0, 0.2)):
        story.say(t, "stall", late_s=took)
    history = story.history()
    base = slack_s(history, configuration(), [])
    for t, took in {5.0: 0.1, 15.0: 0.3, 19.9: 0.3, 25.0: 0.3, 35.0: 0.2}.items():
        assert slack_s(history, configuration(), [Span.at(t)]) - base == pytest.approx(took)
    both = slack_s(history, configuration(), [Span.at(5.0), Span.at(35.0)])
    assert both - base == pytest.approx(0.2)
    assert slack_s(history, configuration()) - base == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("waits", "before_s", "expected"), [(6, 0.0, TOO_LOADED), (1, 0.0, "deviates"), (6, 5.0, "deviates")]
)
def test_successive_cpu_waits_may_have_delayed_an_event(waits: int, before_s: float, expected: str) -> None:
    """Unlike slack they add up: no claim conforms because of them."""
    event_t = last_renewal_t() + GRACE_S + 0.6 + 0.15 + 11.0
    story = measured(partition(eviction_s=11.0))
    for number in range(waits):
        story.say(event_t - before_s - 0.2 * number, "stall", late_s=0.0, waited_s=0.2, by=LAB)
    assert label(story, EVICTION) == expected


@pytest.mark.parametrize(
    ("lab", "waited_s", "expected"),
    [
        ("process", 0.8, TOO_LOADED),
        ("process", 0.2, "deviates"),
        # The processes of a guest share its virtual processors: the whole delay counts.
        ("libvirt", 0.2, TOO_LOADED),
        ("libvirt", 0.05, "deviates"),
    ],
)
def test_cpu_waits_until_a_very_late_event_may_have_delayed_it(
    lab: str, waited_s: float, expected: str
) -> None:
    """The event is 4 s late. On process nodes, only the waits of the last 2 s count."""
    event_t = last_renewal_t() + GRACE_S + 0.6 + 0.15 + 14.0
    story = measured(partition(eviction_s=14.0))
    for number in range(20):
        story.say(event_t - 0.2 * number, "stall", late_s=0.0, waited_s=waited_s, by=LAB)
    history = revised(story.fence(90.0).history())
    assert judge(CLAIM, EVICTION, history, configuration(lab=lab)).label == expected


@pytest.mark.parametrize(
    ("lab", "after_s", "expected"),
    [
        ("libvirt", 0.2, TOO_LOADED),
        # The timer runs, and ends on time.
        ("libvirt", 2.2, "deviates"),
        ("process", 0.2, "deviates"),
    ],
)
@pytest.mark.parametrize(
    ("check", "anchor_t", "late"),
    [
        (TAINT, UNKNOWN_ON_TIME_T, {"taint_s": 10.0}),
        (EVICTION, UNKNOWN_ON_TIME_T + 0.15, {"eviction_s": 17.0}),
    ],
)
def test_cpu_waits_after_an_anchor_may_have_delayed_the_event_on_a_machine(
    check: Check, anchor_t: float, late: Mapping[str, float], lab: str, after_s: float, expected: str
) -> None:
    """The event is 7 s late, by its bound or its period."""
    story = measured(partition(**late))
    for number in range(8):
        story.say(anchor_t + after_s + 0.05 * number, "stall", late_s=0.0, waited_s=0.9, by=LAB)
    history = revised(story.fence(90.0).history())
    assert judge(CLAIM, check, history, configuration(lab=lab)).label == expected


def stalled_often(story: Story, first_t: float, **by: str) -> Story:
    """Stall for 0.6 s four times, awake for 0.1 s in between: less than the limit each, 2.4 s in all."""
    for number in range(4):
        story.say(first_t + 0.6 + 0.7 * number, "stall", late_s=0.6, **by)
    return story


@pytest.mark.parametrize(
    ("by", "before_s", "expected"),
    [
        # Each process of the lab through which a change passes may meet another stall.
        ({"by": LAB}, 2.6, TOO_LOADED),
        # A timer that runs meanwhile does not: it ends on time.
        ({"by": LAB}, 8.0, "deviates"),
        # The harness received the event at the end of the stall in which it came.
        ({}, 2.6, "deviates"),
        ({}, 8.0, "deviates"),
    ],
)
def test_stalls_in_a_row_add_up_only_for_a_change_in_the_lab(
    by: dict[str, str], before_s: float, expected: str
) -> None:
    """The event is 2.2 s late: more than the longest stall and slack allow, less than the sum."""
    event_t = last_renewal_t() + GRACE_S + 0.6 + 0.15 + 12.2
    story = stalled_often(measured(partition(eviction_s=12.2)), event_t - before_s, **by)
    assert label(story, EVICTION) == expected


@pytest.mark.parametrize("by", [{"by": LAB}, {}])
@pytest.mark.parametrize(("eviction_s", "expected"), [(10.1, CONFORMS), (13.0, "deviates")])
def test_stalls_between_anchor_and_event_do_not_add_up(
    by: dict[str, str], eviction_s: float, expected: str
) -> None:
    """Anchor and event are each late by the stall at their own time."""
    story = measured(partition(eviction_s=eviction_s))
    for t in (35.5, 37.0, 38.4):
        story.say(t, "stall", late_s=0.6, **by)
    assert label(story, EVICTION) == expected


@pytest.mark.parametrize(("lab", "added_s"), [("process", 1.2), ("libvirt", 1.8)])
def test_wait_is_extended_by_recorded_cpu_wait(lab: str, added_s: float) -> None:
    """By its window plus the waits, as the verdict requires of the recording: on machines, also the first."""
    story, soon, settings = Story(), windows.up_to(5.0), configuration(lab=lab)
    story.fault(10.0, "injected")
    check, now_t = UNKNOWN.after(moments.fault_step("cut", "injected"), soon), 20.0
    idle_s = undecided_s(check, measured(story, now_t).history(), settings, now_t)
    assert idle_s is not None and idle_s < 0.0
    for number in range(3):
        story.say(10.2 + 0.2 * number, "stall", late_s=0.0, waited_s=0.2, by=LAB)
    for number in range(6):
        story.say(now_t + idle_s - 0.2 * number, "stall", late_s=0.0, waited_s=0.2, by=LAB)
    loaded_s = undecided_s(check, story.history(), settings, now_t)
    assert loaded_s is not None and loaded_s - idle_s == pytest.approx(added_s)


@pytest.mark.parametrize("by", [{"by": LAB}, {}])
@pytest.mark.parametrize(
    ("until_t", "late_s", "expected"), [(31.0, 12.0, TOO_LOADED), (12.0, 4.0, "deviates")]
)
def test_stall_may_have_delayed_the_last_heartbeats(
    by: dict[str, str], until_t: float, late_s: float, expected: str
) -> None:
    """Detection was possible from 12 s before on."""
    story = Story().renewals(0.0, 18.0).renew(31.1).condition(31.4, "Unknown")
    story.say(until_t, "stall", late_s=late_s, **by)
    assert label(measured(story), DETECTION) == expected


@pytest.mark.parametrize(
    ("stalls", "expected"),
    [
        ({15.0: GRACE_S - 2.0}, TOO_LOADED),
        ({15.0: GRACE_S - 5.0}, "deviates"),
        ({8.0: 5.0, 15.0: 6.0}, TOO_LOADED),
        ({8.0: 5.0, 18.0: 6.0}, "deviates"),
        ({80.0: GRACE_S}, "deviates"),
    ],
)
def test_lab_stalled_for_the_grace_period_has_lost_its_nodes(
    stalls: dict[float, float], expected: str
) -> None:
    story = measured(partition(eviction_s=14.0))
    for until_t, late_s in stalls.items():
        story.say(until_t, "stall", late_s=late_s, by=LAB)
    assert label(story, EVICTION) == expected


def test_much_earlier_stall_does_not_excuse_an_early_event() -> None:
    """It affects neither the anchor nor the event, and would not explain the time."""
    story = measured(partition(eviction_s=2.0)).say(26.0, "stall", late_s=1.2, by=LAB)
    assert label(story, EVICTION) == "deviates"


@pytest.mark.parametrize(
    ("latencies_s", "calmest"),
    [
        ((0.01, 0.02), 9.0),
        ((0.01, 0.02, 0.03), 0.03),
        ((0.5, 0.01, 0.02, 0.03), 0.03),
        ((0.01, 0.5, 0.02, 0.4, 0.3), 0.4),
    ],
)
def test_calibration_is_the_worst_of_the_calmest_latencies(
    latencies_s: tuple[float, ...], calmest: float
) -> None:
    assert calmest_s(latencies_s, 3, none_s=9.0) == calmest
