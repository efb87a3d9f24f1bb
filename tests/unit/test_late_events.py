"""Events that a watch delays, and wall clock steps: times are right, or unproven."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from nodeproof.checks import moments
from nodeproof.checks.heartbeats import lease_renewals
from nodeproof.checks.judge import judge, undecided_s
from nodeproof.model import window as windows
from nodeproof.model.clocks import error_s, offset_s
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.judgment import Check
from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span, misread_s, slack_s, step_s
from nodeproof.recording.node_messages import WallClock, measure_stalls
from tests.unit.histories import (
    CUT_T,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    TOLERATION_S,
    WALL_OFFSET_S,
    Story,
    configuration,
    last_renewal_t,
    partition,
    second,
    wall,
)
from tests.unit.sample_checks import CLAIM, DETECTION, EVICTION, RENEWALS, STAYS, UNKNOWN
from tests.waiting import eventually

# A watch that delays events between two sentinels: their write times, or newer writes, show it.


Deed = tuple[float, Callable[[], object]]


def write(
    story: Story, t: float, late_s: float, change: Callable[[Json], object], node: str = NODE, by: str = "it"
) -> None:
    """Write a Node at `t`, and deliver it later by its watch."""
    body = story.object("nodes", "", node)
    change(body)
    others = [field for field in body["metadata"].get("managedFields", ()) if field["manager"] != by]
    body["metadata"]["managedFields"] = [*others, {"manager": by, "time": second(t)}]
    story.change(t + late_s, "nodes", "", node, body)


def unlabelled(body: Json) -> None:
    body["metadata"]["labels"] = {}


def unknown(body: Json) -> None:
    body["status"]["conditions"][0]["status"] = "Unknown"


def tainted(body: Json) -> None:
    body["spec"]["taints"] = [{"key": UNREACHABLE, "effect": "NoExecute"}]


def detected(after_s: float, late_s: float, other_t: float | None = None) -> Story:
    """Return a story of a node that is Unknown `after_s` after its last heartbeat, delivered `late_s` late.

    Sentinels are in time. What somebody writes of another Node at `other_t` is 1.6 s late.
    """
    story, unknown_t = Story(), last_renewal_t() + after_s
    deeds: list[Deed] = [(unknown_t + late_s, partial(write, story, unknown_t, late_s, unknown))]
    if other_t is not None:
        deeds.append((other_t + 1.6, partial(write, story, other_t, 1.6, unlabelled, OTHER)))
    return cut_off(story, deeds)


def overtaken(after_s: float, late_s: float) -> Story:
    """Return a story as `detected`, without write times; a Lease of another node is renewed all the time."""
    story, unknown_t = Story(), last_renewal_t() + after_s

    def deliver() -> None:
        body = story.object("nodes", "", NODE)
        story.say(unknown_t + late_s, "watch", resource="nodes", type="MODIFIED", object=body)

    renewals = [(t, partial(story.renew, t, OTHER)) for t in (number * 0.25 for number in range(4, 240))]
    return cut_off(
        story,
        [
            (unknown_t, partial(story.alter_node, unknown_t, unknown, is_watched=False)),
            (unknown_t + late_s, deliver),
            *renewals,
        ],
    )


def cut_off(story: Story, deeds: Sequence[Deed]) -> Story:
    """Complete a story of a node that is partitioned at `CUT_T`, with sentinels in time."""
    cut: list[Deed] = [
        (CUT_T, partial(story.fault, CUT_T, "planned", "armed", "injected")),
        *((t, partial(story.sentinel, t)) for t in map(float, range(2, 60, 2))),
        *((t, partial(story.renew, t)) for t in (2.5 + number * RENEW_S * 1.02 for number in range(9))),
    ]
    for _t, deed in sorted([*cut, *deeds], key=lambda pair: pair[0]):
        deed()
    return story.fence(61.0)


@pytest.mark.parametrize(
    ("after_s", "late_s", "expected"),
    [
        (13.4, 0.02, "conforms"),
        (11.2, 0.02, "deviates"),
        (15.5, 0.02, "deviates"),
        (13.4, 0.9, "unproven: host-too-loaded"),
        (13.2, 1.1, "unproven: host-too-loaded"),
        (11.2, 1.0, "unproven: host-too-loaded"),
        (11.5, 0.8, "unproven: host-too-loaded"),
        (11.2, 1.6, "unproven: host-too-loaded"),
    ],
)
def test_event_received_after_newer_ones_was_delayed(after_s: float, late_s: float, expected: str) -> None:
    assert outcome(DETECTION, overtaken(after_s, late_s)) == expected


@pytest.mark.parametrize("resource", ["nodes", "leases", "events"])
def test_revisions_of_another_etcd_show_no_delay(resource: str) -> None:
    """kube-apiserver's --etcd-servers-overrides gives a resource an etcd of its own."""
    story = overtaken(13.4, 0.02)
    for entry in story.entries:
        if entry.kind == "watch" and entry.data["resource"] == resource:
            meta = entry.data["object"]["metadata"]
            meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1_000_000)
    assert story.history().late == []


def outcome(check: Check, story: Story, limit_s: float = 1.0) -> str:
    return judge(CLAIM, check, story.history(), configuration(slack_limit_s=limit_s)).label


@pytest.mark.parametrize("limit_s", [1.0, 3.0])
@pytest.mark.parametrize(
    ("after_s", "late_s", "expected"),
    [
        (13.4, 0.02, "conforms"),
        (11.2, 0.02, "deviates"),
        (15.5, 0.02, "deviates"),
        (13.4, 1.6, "unproven: host-too-loaded"),
        (11.2, 1.2, "unproven: host-too-loaded"),
        (11.2, 3.0, "unproven: host-too-loaded"),
    ],
)
def test_time_of_a_delayed_event_is_unproven(
    after_s: float, late_s: float, expected: str, limit_s: float
) -> None:
    assert outcome(DETECTION, detected(after_s, late_s), limit_s) == expected


@pytest.mark.parametrize(
    ("other_t", "expected"),
    [
        (25.0, "conforms"),
        (31.0, "unproven: host-too-loaded"),
        (32.0, "unproven: host-too-loaded"),
        (45.0, "conforms"),
    ],
)
def test_delay_long_before_or_after_does_not_matter(other_t: float, expected: str) -> None:
    assert outcome(DETECTION, detected(12.6, 0.02, other_t)) == expected


def test_absence_with_a_delayed_event_is_unproven() -> None:
    story = Story().pod(1.0, node=NODE).condition(20.0, "Unknown").condition(30.0, "True")
    assert outcome(STAYS, story.fence(60.0)) == "conforms"
    body = story.object("pods", NAMESPACE, POD)
    body["metadata"] |= {"deletionTimestamp": second(33.0 + 30.0), "deletionGracePeriodSeconds": 30}
    story.change(36.0, "pods", NAMESPACE, POD, body)
    story.fence(61.0)
    (late,) = story.history().late
    assert (late.t, late.resource) == (36.0, "pods")
    assert late.late_s == pytest.approx(3.0)
    assert outcome(STAYS, story) == "unproven: host-too-loaded"


def test_removal_without_a_write_shows_no_delay() -> None:
    story = Story()
    write(story, 5.3, 0.02, lambda body: body["spec"].update(unschedulable=True))
    story.cordon(40.0, on=False).remove(50.0, "nodes", "", NODE)
    assert story.history().late == []


def test_listed_or_replayed_event_was_not_delayed() -> None:
    story = detected(12.6, 5.0)
    assert len(story.history().late) == 1
    story.gap(30.0, 36.0, "nodes")
    assert story.history().late == []
    listed = Story()
    write(listed, 5.0, 0.02, unknown)
    listed.list(30.0, "nodes")
    assert listed.history().late == []


def test_delay_explained_by_a_stall_or_sentinel_counts_once() -> None:
    story, event_t = detected(12.6, 1.6), last_renewal_t() + 12.6
    assert misread_s(story.history(), configuration(), [Span.at(event_t)]) == pytest.approx(1.6, abs=1.0)
    story.say(event_t + 1.6, "stall", late_s=1.6)
    assert misread_s(story.history(), configuration(), [Span.at(event_t)]) == 0.0


@pytest.mark.parametrize(("late_s", "expected"), [(0.02, "conforms"), (1.5, "unproven: host-too-loaded")])
def test_delayed_anchor_does_not_make_an_event_too_early(late_s: float, expected: str) -> None:
    story = Story().pod(1.0, node=NODE)
    write(story, 20.0, late_s, tainted)
    story.evict(20.0 + TOLERATION_S + 0.1)
    assert outcome(EVICTION, story.fence(60.0)) == expected


def test_gap_explains_only_what_was_written_before_the_watch_was_back() -> None:
    """A Node is written 0.6 s after the watch was back, and delivered 1.4 s late."""
    story = Story().sentinel(10.0).gap(10.5, 12.9, "nodes")
    write(story, 13.5, 1.4, unlabelled, OTHER)
    history = story.sentinel(15.5).fence(20.0).history()
    assert [late.resource for late in history.late] == ["nodes"]
    before = Story().sentinel(10.0).gap(10.5, 12.9, "nodes")
    write(before, 11.5, 1.5, unlabelled, OTHER)
    assert before.sentinel(15.5).fence(20.0).history().late == []


# Wall clock steps during a recording: times are right, or open.


NOTICED_WITHIN_S = 0.05
"""The period of clock comparisons."""
OPEN = "unproven"


def set_clock(story: Story, *steps: tuple[float, float]) -> History:
    """Return the same history on a host whose wall clock steps at times (s) by this much (s)."""

    def moved_s(t: float) -> float:
        return sum(by_s for at_t, by_s in steps if at_t <= t)

    def written(timestamp: str) -> str:
        written_t = parse_time(timestamp) - WALL_OFFSET_S
        return wall(written_t + moved_s(written_t))

    entries = []
    for entry in story.entries:
        object_ = copy.deepcopy(entry.data["object"]) if entry.kind == "watch" else {}
        for part, name in (("spec", "renewTime"), ("metadata", "deletionTimestamp")):
            if name in object_.get(part, {}):
                object_[part][name] = written(object_[part][name])
        entries.append(replace(entry, data={**entry.data, "object": object_}) if object_ else entry)
    for at_t, _by_s in steps:
        data = {"offset_s": WALL_OFFSET_S + moved_s(at_t), "since": at_t - NOTICED_WITHIN_S / 2}
        entries.append(Entry(at_t + NOTICED_WITHIN_S / 2, "wall", data))
    return History.of(entries)


def detected_after(seconds: float) -> Story:
    return partition(unknown_s=seconds).fence(60.0)


def verdict_of(check: Check, history: History) -> str:
    return judge(CLAIM, check, history, configuration()).outcome


BEFORE_T = last_renewal_t() - 0.5


@pytest.mark.parametrize(
    ("detected_s", "steps", "expected"),
    [
        (12.3, [], "conforms"),
        (11.7, [], "deviates"),
        (12.3, [(BEFORE_T, 0.6)], OPEN),
        (13.0, [(BEFORE_T, 0.6)], "conforms"),
        (11.7, [(BEFORE_T, -0.6)], OPEN),
        (11.2, [(BEFORE_T, -0.7)], "deviates"),
        (8.0, [(BEFORE_T, -5.0), (last_renewal_t() + 10.0, 5.0)], OPEN),
        (12.3, [(BEFORE_T, 3.0), (last_renewal_t() + 10.0, -3.0)], OPEN),
        (10.5, [(BEFORE_T, -1.9), (last_renewal_t() + 10.0, 1.9)], OPEN),
        # A step far from all readings affects nothing.
        (12.3, [(5.0, 30.0)], "conforms"),
        (11.7, [(5.0, -3.0)], "deviates"),
        (11.7, [(last_renewal_t() + 5.0, -2.0)], "deviates"),
        (12.3, [(50.0, 1000.0)], "conforms"),
    ],
)
def test_detection_is_timed_by_the_clock_of_its_heartbeat(
    detected_s: float, steps: list[tuple[float, float]], expected: str
) -> None:
    assert verdict_of(DETECTION, set_clock(detected_after(detected_s), *steps)) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], "conforms"),
        ([(10.0, -0.2)], OPEN),
        ([(10.0, 0.05)], "conforms"),
        ([(8.5, -0.5), (10.5, 0.5)], OPEN),
    ],
)
def test_renewals_are_timed_by_the_clock_of_each(steps: list[tuple[float, float]], expected: str) -> None:
    renewing = Story().renewals(0.9, 20.0, period_s=1.015 * RENEW_S).fence(21.0)
    assert verdict_of(RENEWALS, set_clock(renewing, *steps)) == expected


@pytest.mark.parametrize(("true_s", "true"), [(12.3, "conforms"), (11.7, "deviates"), (15.0, "deviates")])
def test_clock_step_never_causes_a_wrong_verdict(true_s: float, true: str) -> None:
    story, labels = detected_after(true_s), set()
    for by_s, after_s in product((-3.0, -0.6, 0.6, 3.0), (-3.0, -0.6, -0.02, 0.0, 0.02, 0.6, 3.0)):
        for back_s in (0.03, 0.5, 10.0, 1000.0):
            at_t = last_renewal_t() + after_s
            labels.add(verdict_of(DETECTION, set_clock(story, (at_t, by_s), (at_t + back_s, -by_s))))
    assert labels == {true, OPEN}


def ended_with(history: History, moved_s: float) -> History:
    """Return a recording of an earlier version, which compared the clocks at its end only."""
    entries = [entry for entry in history.entries if entry.kind not in ("wall", "ended")]
    return History.of([*entries, Entry(history.ended_t, "ended", {"wall_offset_s": WALL_OFFSET_S + moved_s})])


@pytest.mark.parametrize(("detected_s", "moved_s"), [(11.7, -0.6), (12.3, 0.6), (10.5, -1.9)])
def test_clock_step_known_only_at_the_end_leaves_times_unproven(detected_s: float, moved_s: float) -> None:
    stepped = set_clock(detected_after(detected_s), (BEFORE_T, moved_s))
    assert verdict_of(DETECTION, ended_with(stepped, moved_s)) == OPEN


def test_reading_difference_of_both_clocks_is_no_step() -> None:
    assert step_s(ended_with(detected_after(12.3).history(), 0.0004)) == 0.0


def test_repeated_wall_time_is_the_last_possible_one() -> None:
    history = Story().say(10.02, "wall", offset_s=WALL_OFFSET_S - 4.0, since=9.97).history()
    assert history.from_wall(wall(9.0)) == pytest.approx(13.0)
    assert history.from_wall(wall(9.0), received_t=9.1) == pytest.approx(9.0)
    assert history.from_wall(wall(5.0)) == pytest.approx(5.0)
    assert history.from_wall(wall(20.0)) == pytest.approx(24.0)
    assert (history.wall_offset_s(9.0), history.wall_offset_s(11.0)) == (WALL_OFFSET_S, WALL_OFFSET_S - 4.0)


def test_node_clock_is_independent_of_steps_of_the_host_clock() -> None:
    """The node's clock was 0.5 s ahead of a clock that stepped by 3 s."""
    story = Story(nodes=()).say(0.1, "clock", node=NODE, offset_s=0.5, error_s=0.01)
    story.change(0.2, "nodes", "", NODE, {"spec": {}, "status": {}})
    for t in (8.0, 10.0, 12.0, 14.0):
        story.renew(t + 0.5, received_t=t + 0.01)
    story.say(11.02, "wall", offset_s=WALL_OFFSET_S + 3.0, since=10.97)
    history = story.say(15.0, "clock", node=NODE, offset_s=-2.5, error_s=0.02).history()
    assert offset_s(history, NODE, 14.0) == pytest.approx(0.5)
    assert error_s(history) == pytest.approx(0.01)
    received = {round(beat.detail["received_t"]): beat.t for beat in lease_renewals(history, NODE)}
    assert [received[t] for t in (10, 14)] == pytest.approx([10.0, 14.0])


def test_step_counts_by_its_size_and_only_nearby() -> None:
    story = Story().say(20.0, "wall", offset_s=WALL_OFFSET_S - 3.0, since=19.95)
    story.say(60.0, "wall", offset_s=WALL_OFFSET_S, since=59.95)
    history = story.history()
    near = {10.0: 0.0, 16.0: 3.0, 20.0: 3.0, 24.0: 3.0, 30.0: 0.0, 58.0: 3.0}
    assert {t: step_s(history, [Span.at(t)]) for t in near} == pytest.approx(near)
    assert step_s(history) == pytest.approx(6.0)
    quiet, touched = (slack_s(history, configuration(), [Span.at(t)]) for t in (10.0, 20.0))
    assert touched - quiet == pytest.approx(3.0)


def test_clock_step_does_not_extend_a_wait_by_its_size() -> None:
    """As on a laptop that was suspended."""
    story = Story().fault(10.0, "injected")
    check = UNKNOWN.after(moments.fault_step("cut", "injected"), windows.up_to(5.0))
    before = undecided_s(check, story.history(), configuration(), 12.0)
    story.say(11.0, "wall", offset_s=WALL_OFFSET_S + 3600.0, since=10.95)
    after = undecided_s(check, story.history(), configuration(), 12.0)
    assert before is not None and after is not None
    assert after - before == pytest.approx(configuration().slack_limit_s)


@pytest.mark.parametrize(
    ("window", "low_s"),
    [
        (windows.renewals(), RENEW_S - 0.1 - 0.3),
        (windows.detection(), 12.0 - 0.3),
        (windows.afterwards(5.0), -0.3),
        (windows.up_to(5.0), -0.8),
        (windows.absence(5.0), 0.0),
    ],
)
def test_lower_bound_counts_a_step_once(window: windows.WindowSpec, low_s: float) -> None:
    """Slack already contains the step; an absence is shortened by slack at both ends."""
    computed = windows.compute(window, windows.WindowContext(configuration(), 0.8, 0.3), {})
    assert computed.low_s == pytest.approx(low_s)
    assert ("misread" in computed.low_arithmetic) is (window.name in ("renewals", "detection", "afterwards"))


@pytest.mark.parametrize(
    ("offsets_s", "recorded_s"),
    [
        ([100.0, 100.0004, 103.0, 103.0001, 99.0], [103.0, 99.0]),
        ([100.0 + 0.0004 * number for number in range(10)], [100.0012, 100.0024, 100.0036]),
    ],
    ids=["two steps", "many small steps add up"],
)
def test_clock_step_is_recorded_once_with_its_new_offset(
    offsets_s: list[float], recorded_s: list[float]
) -> None:
    offsets, written = iter(offsets_s), []
    clock = WallClock(lambda kind, **data: written.append((kind, data["offset_s"])), lambda: next(offsets))
    for _ in offsets_s[1:]:
        clock.look()
    assert written == [("wall", pytest.approx(offset_s)) for offset_s in recorded_s]
    assert clock.offset_s == pytest.approx(recorded_s[-1])


def test_stall_measurement_reads_the_clock_on_each_wakeup() -> None:
    stopping, looks = threading.Event(), []

    def append(_kind: str, *, late_s: float) -> None:
        assert late_s >= 0.0

    def look() -> None:
        looks.append(1)
        raise OSError("no room for it")

    thread = threading.Thread(target=measure_stalls, args=(append, stopping, 60.0, look))
    thread.start()
    assert eventually(lambda: len(looks) >= 2, 10.0)
    stopping.set()
    thread.join()


def test_reading_the_clock_causes_no_step() -> None:
    written: list[str] = []
    clock = WallClock(lambda kind, **_data: written.append(kind))
    for _ in range(1000):
        clock.look()
    assert written == []
