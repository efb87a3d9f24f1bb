"""Random histories of a small cluster, seen through watches that break: the verdict is the truth's, or none.

The truth is what the cluster wrote and when: a condition may flap before the fault, and a pod may exist for a
while only. The recording is what the harness would have made of it: watches with latency, slow or blind for a
while, taken up again from their resourceVersion (the backlog comes in one burst) or with a new LIST (only the
last states come), a harness that stands still once or often, and sentinels that are late or given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from nodeproof.checks import moments
from nodeproof.checks.judge import judge
from nodeproof.checks.repeated import counted
from nodeproof.model import window as windows
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.pattern import Json
from tests.unit.histories import (
    GRACE_S,
    NAMESPACE,
    NODE,
    OTHER,
    POD,
    RENEW_S,
    RESOURCES,
    TOLERATION_S,
    Story,
    configuration,
    second,
)
from tests.unit.sample_checks import (
    CLAIM,
    CUT,
    DELETION,
    DETECTION,
    EVICTION,
    FROM_FAULT,
    READY,
    STAYS,
    TAINT,
    TAINTED,
    UNKNOWN,
)

EXAMPLES = int(os.environ.get("NODEPROOF_EXAMPLES", "300"))
"""Some hundred by default; the nightly run asks for ten thousand."""
BEGUN_T, ENDS_T, SENTINEL_PERIOD_S, FENCE_T = -0.5, 90.0, 2.0, 86.0
ABANDONED_S = 10.0
SLACK_LIMIT_S = configuration().slack_limit_s
BURST_S = 0.001
CUT_T, LAST_BEAT_T = 20.0, 19.5
RENEWED_T = [0.5 + number * RENEW_S for number in range(45)]
BRIEF = "brief"
"""A pod that exists for a while."""
Deed = tuple[float, Callable[[float], object]]


@dataclass(frozen=True)
class Gap:
    """A gap of a watch; `lists` if its resourceVersion has expired."""

    resource: str
    since_t: float
    until_t: float
    lists: bool


@dataclass(frozen=True)
class Slow:
    """A watch that delivers late between two times."""

    resource: str
    since_t: float
    until_t: float
    late_s: float


@dataclass(frozen=True)
class Disturbed:
    """What separates the harness from the truth; it is suspended during each of the `stops`.

    What is slow in a `hidden` way is so between two sentinels only.
    """

    latency_s: float = 0.0
    gaps: Sequence[Gap] = ()
    slow: Sequence[Slow] = ()
    stops: Sequence[tuple[float, float]] = ()
    hidden: Sequence[Slow] = ()

    @property
    def beyond_latency(self) -> bool:
        """Whether more than the latency separates them."""
        return bool(self.gaps or self.slow or self.stops or self.hidden)

    def awake(self, t: float) -> float:
        """Return when the harness does what it would have done at `t`."""
        return next((until_t for since_t, until_t in self.stops if since_t <= t < until_t), t)

    def arrival(self, resource: str, t: float) -> float:
        """Return when a write at `t` would arrive through an unbroken watch."""
        slow = [pause for pause in (*self.slow, *self.hidden) if pause.resource == resource]
        late_s = [pause.late_s for pause in slow if pause.since_t <= t < pause.until_t]
        return t + self.latency_s + max(late_s, default=0.0)


UNDISTURBED = Disturbed()


@dataclass(frozen=True)
class Write:
    """A write to the API at `t`."""

    t: float
    object: Json
    type: str


class DatedStory(Story):
    """What the cluster did; an object says in which second its fields were written, as the API does."""

    def change(
        self, t: float, resource: str, namespace: str, name: str, body: Json, *, is_watched: bool = True
    ) -> Story:
        written = {**body.get("metadata", {}), "managedFields": [{"manager": "it", "time": second(t)}]}
        return super().change(
            t, resource, namespace, name, {**body, "metadata": written}, is_watched=is_watched
        )

    def writes(self, resource: str) -> Sequence[Write]:
        """Return the writes of a resource in order, from the objects at the beginning on."""
        about = [entry for entry in self.entries if entry.data.get("resource") == resource]
        first = [Write(BEGUN_T, obj, "ADDED") for entry in about for obj in entry.data.get("items", ())]
        watched = [entry for entry in about if entry.kind == "watch"]
        return first + [Write(entry.t, entry.data["object"], entry.data["type"]) for entry in watched]


@dataclass(frozen=True)
class Schedule:
    """Times of the cluster's actions after the partition (s); None if an action does not happen.

    Args:
        flap: When the Node was Unknown before, and for how long (s).
        brief: When another pod was created and removed, in turn (s).
    """

    unknown_s: float
    taint_s: float
    evicted_s: float | None
    removal_s: float
    ready_s: float
    statuses: tuple[float, ...]
    flap: tuple[float, float] | None = None
    brief: tuple[float, ...] = ()

    @property
    def ready_t(self) -> float:
        """When the node is Ready again (s)."""
        return LAST_BEAT_T + self.ready_s

    def has_brief(self, since_t: float, until_t: float) -> bool:
        """Return whether the other pod existed all the time."""
        created = [t for t in self.brief[::2] if t <= since_t]
        removed = [t for t in self.brief[1::2] if t <= until_t]
        return bool(created) and all(t < created[-1] for t in removed)


def act(schedule: Schedule, sentinels: Sequence[float]) -> DatedStory:
    """Carry out the schedule in the order of time; a pod is on the partitioned node from the beginning on."""
    story = DatedStory()
    story.pod(BEGUN_T, node=NODE)
    removed = partial(story.remove, resource="pods", namespace=NAMESPACE)
    unknown_t = LAST_BEAT_T + schedule.unknown_s
    taint_t, ready_t = unknown_t + schedule.taint_s, schedule.ready_t
    deeds: list[Deed] = [(t, partial(renew, story, OTHER)) for t in RENEWED_T]
    deeds += [(t, partial(renew, story, NODE)) for t in (*RENEWED_T, LAST_BEAT_T) if t <= LAST_BEAT_T]
    deeds += [(unknown_t, partial(story.condition, status="Unknown")), (taint_t, story.taint)]
    deeds += [(ready_t, story.status), (ready_t + 0.2, story.untaint)]
    if schedule.evicted_s is not None:
        evicted_t = taint_t + schedule.evicted_s
        deeds += [(evicted_t, story.evict), (evicted_t + schedule.removal_s, partial(removed, name=POD))]
    if schedule.flap is not None:
        flap_t, for_s = schedule.flap
        deeds += [(flap_t, partial(story.condition, status="Unknown")), (flap_t + for_s, story.status)]
    deeds += [(t, partial(story.pod, name=BRIEF)) for t in schedule.brief[::2]]
    deeds += [(t, partial(removed, name=BRIEF)) for t in schedule.brief[1::2]]
    deeds += [(t, partial(again, story)) for t in schedule.statuses]
    deeds += [(t, partial(story.sentinel, latency_s=0.0)) for t in sentinels]
    for t, deed in sorted(deeds, key=lambda pair: pair[0]):
        deed(t)
    story.fault(CUT_T, "planned", "armed", "injecting", "injected")
    return story


def renew(story: Story, node: str, t: float) -> None:
    story.renew(t, node, received_t=t)


def again(story: Story, t: float) -> None:
    """Update another node's status, which keeps the sentinel's annotation."""
    story.change(t, "nodes", "", OTHER, story.object("nodes", "", OTHER))


def received(story: DatedStory, disturbed: Disturbed) -> Iterator[Entry]:
    """Yield what the watches deliver, and when."""
    for resource in RESOURCES:
        gaps = [gap for gap in disturbed.gaps if gap.resource == resource]
        writes = story.writes(resource)
        first = [write for write in writes if write.t == BEGUN_T]
        yield Entry(0.0, "listed", _list(resource, first))
        watched = list(_watched(resource, writes[len(first) :], gaps, disturbed))
        yield from watched
        for gap in gaps:
            until_t = disturbed.awake(gap.until_t)
            if gap.lists:
                before = [write for write in writes if write.t < gap.until_t]
                yield Entry(until_t - 0.01, "listed", _list(resource, before))
            # The recorder knows only when the last event came.
            last_t = max((entry.t for entry in watched if entry.t <= gap.since_t), default=0.0)
            data = {"resource": resource, "since": last_t, "reason": "cut"}
            yield Entry(until_t, "gap", data)


def _watched(
    resource: str, writes: Sequence[Write], gaps: Sequence[Gap], disturbed: Disturbed
) -> Iterator[Entry]:
    """Delay events in the order of writing: a late one delays its successors."""
    last_t = 0.0
    for write in writes:
        t = disturbed.arrival(resource, write.t)
        missed = [gap for gap in gaps if write.t < gap.until_t and t >= gap.since_t]
        if any(gap.lists for gap in missed):
            continue
        if missed:
            t = disturbed.arrival(resource, max(gap.until_t for gap in missed))
        last_t = max(disturbed.awake(t), last_t + BURST_S)
        yield Entry(last_t, "watch", {"resource": resource, "type": write.type, "object": write.object})


def record(story: DatedStory, disturbed: Disturbed, sentinels: Mapping[str, float]) -> History:
    """Return the recording: received events, sentinels, faults, and the fence."""
    entries = [entry for entry in story.entries if entry.kind in ("begun", "clock", "fault")]
    entries += received(story, disturbed)
    back = _first_back(entries)
    entries += [_sentinel(value, t, back.get(value, {}), disturbed) for value, t in sentinels.items()]
    entries += [
        Entry(until_t, "stall", {"late_s": until_t - since_t}) for since_t, until_t in disturbed.stops
    ]
    *_, last = sentinels
    listed = {name: {"rv": str(story.rv), "objects": story.objects(name)} for name in RESOURCES}
    data = {"sentinels": dict.fromkeys(RESOURCES, last), "listed": listed}
    entries += [Entry(ENDS_T, "fence", data), Entry(ENDS_T + 0.1, "ended", {})]
    return History.of(entries)


def _sentinel(value: str, sent_t: float, back: Mapping[str, float], disturbed: Disturbed) -> Entry:
    """Yield the recorder's sentinel entries: on its return, on a broken watch, or on its timeout."""
    breaks = {gap.resource: disturbed.awake(gap.until_t) for gap in disturbed.gaps if gap.until_t >= sent_t}
    whole_t = max(back.values()) if len(back) == len(RESOURCES) else ENDS_T
    t = disturbed.awake(min([whole_t, sent_t + ABANDONED_S, *breaks.values()]))
    whole = [name for name in RESOURCES if breaks.get(name, ENDS_T) > t]
    took = {name: round(min(back.get(name, t), t) - sent_t, 6) for name in whole}
    return Entry(t, "sentinel", {"value": value, "sent_t": dict.fromkeys(whole, sent_t), "latency_s": took})


def _first_back(entries: list[Entry]) -> Mapping[str, Mapping[str, float]]:
    """Return when each watch first delivered each sentinel."""
    back: dict[str, dict[str, float]] = {}
    for entry in sorted(entries, key=lambda entry: entry.t):
        metadata = entry.data["object"]["metadata"] if entry.kind == "watch" else {}
        value = metadata.get("annotations", {}).get(SENTINEL_ANNOTATION)
        if value:
            back.setdefault(value, {}).setdefault(entry.data["resource"], entry.t)
    return back


def _list(resource: str, writes: Sequence[Write]) -> Mapping[str, Json]:
    last = {write.object["metadata"]["uid"]: write for write in writes}
    live = [write.object for write in last.values() if write.type != "DELETED"]
    rv = max((int(write.object["metadata"]["resourceVersion"]) for write in last.values()), default=0)
    return {"resource": resource, "rv": str(rv), "items": live}


def deeds(schedule: Schedule) -> tuple[float, ...]:
    """Return the times of the judged actions."""
    taint_s = schedule.unknown_s + schedule.taint_s
    after = (0.0, schedule.unknown_s, taint_s, taint_s + (schedule.evicted_s or 0.0), schedule.ready_s)
    flap_t = schedule.flap[0] if schedule.flap else LAST_BEAT_T
    return (*(LAST_BEAT_T + delay_s for delay_s in after), flap_t, *(schedule.brief[:1] or (LAST_BEAT_T,)))


def apart(schedule: Schedule) -> Schedule:
    """Return the schedule without changes of the other pod within the slack limit of Ready.

    Whether a pod that leaves there was missing before the end depends on the slack, which a slower watch
    lengthens. The same holds for the fault, near which no time is drawn.
    """
    brief = tuple(t for t in schedule.brief if abs(t - schedule.ready_t) > SLACK_LIMIT_S)
    return replace(schedule, brief=brief)


FLAPS_T = (6.0, 11.0, 16.0)
schedules = st.builds(
    Schedule,
    unknown_s=st.sampled_from((GRACE_S + 0.5, GRACE_S + 1.5, GRACE_S - 1.0, GRACE_S - 3.0, GRACE_S + 6.0)),
    taint_s=st.sampled_from((0.1, 0.6, 2.1, 5.0)),
    evicted_s=st.one_of(
        st.none(), st.sampled_from((TOLERATION_S, TOLERATION_S + 0.1, TOLERATION_S + 5.3, TOLERATION_S - 4.0))
    ),
    removal_s=st.sampled_from((0.3, 2.5)),
    ready_s=st.one_of(st.floats(20.0, 22.0), st.floats(40.0, 50.0)),
    statuses=st.lists(st.floats(1.0, 60.0), max_size=6).map(tuple),
    flap=st.one_of(st.none(), st.tuples(st.sampled_from(FLAPS_T), st.sampled_from((0.3, 1.4)))),
    # Right before the Node flaps, or at any time.
    brief=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(FLAPS_T), st.sampled_from((0.05, 0.15, 0.7, 2.5))).map(
                lambda pair: pair[0] - pair[1]
            ),
            st.floats(2.0, 19.0),
            st.floats(21.0, 40.0),
        ),
        max_size=4,
        unique=True,
    ).map(lambda times: tuple(sorted(times))),
).map(apart)


def breaking(
    resource: str, t: float, before_s: float, after_s: float, lists: bool, late_s: float, late_for_s: float
) -> tuple[Gap, Slow]:
    """Return a watch that breaks around an action; before, it may be late."""
    since_t = max(0.5, t - before_s)
    return Gap(resource, since_t, t + after_s, lists), Slow(resource, since_t - late_for_s, since_t, late_s)


def slowed(resource: str, t: float, before_s: float, for_s: float, late_s: float) -> Slow:
    return Slow(resource, t - before_s, t - before_s + for_s, late_s)


def suspended(
    t: float, before_s: float, for_s: float, times: int = 1, awake_s: float = 0.0
) -> Sequence[tuple[float, float]]:
    first_t = max(CUT_T + 0.5, t - before_s)
    since = [first_t + number * (for_s + awake_s) for number in range(times)]
    return [(since_t, since_t + for_s) for since_t in since]


@st.composite
def stories(draw: st.DrawFn) -> tuple[Schedule, Disturbed]:
    """Draw a schedule, and what disturbs the harness around some of its actions."""
    schedule = draw(schedules)
    resource = st.sampled_from(("nodes", "pods", "leases"))
    times = deeds(schedule)
    of_fault = st.sampled_from(times[:5])
    broken = st.lists(
        st.builds(
            breaking,
            resource=resource,
            t=st.one_of(of_fault, st.sampled_from(times[5:])),
            before_s=st.floats(-2.0, 10.0),
            after_s=st.floats(2.01, 10.0),
            lists=st.booleans(),
            late_s=st.one_of(st.just(0.0), st.floats(0.3, 3.0)),
            late_for_s=st.floats(0.5, 4.0),
        ),
        max_size=2,
        unique_by=lambda pair: pair[0].resource,
    )
    # Longer than a sentinel's period.
    late = st.builds(
        slowed,
        resource=resource,
        t=of_fault,
        before_s=st.floats(-1.0, 8.0),
        for_s=st.floats(4.5, 12.0),
        late_s=st.floats(0.1, 8.0),
    )
    # Between two sentinels only the API's own times, in whole seconds, show it. They show nothing about a
    # write within a second of another write of its object.
    hidden = st.builds(
        slowed,
        resource=st.sampled_from(("nodes", "pods")),
        t=st.sampled_from((times[1], times[3])),
        before_s=st.floats(0.0, 0.5),
        for_s=st.floats(0.1, 1.5),
        late_s=st.floats(1.3, 1.9),
    )
    once = st.builds(suspended, t=of_fault, before_s=st.floats(-1.0, 5.0), for_s=st.floats(0.1, 6.0))
    # Each is below the limit of slack.
    often = st.builds(
        suspended,
        t=of_fault,
        before_s=st.floats(-1.0, 8.0),
        for_s=st.floats(0.2, 0.7),
        times=st.integers(2, 8),
        awake_s=st.floats(0.06, 1.0),
    )
    pairs, slow = draw(broken), draw(st.lists(late, max_size=1))
    return schedule, Disturbed(
        draw(st.sampled_from((0.01, 0.05, 0.2))),
        [gap for gap, _pause in pairs],
        [*slow, *(pause for _gap, pause in pairs)],
        draw(st.one_of(st.just(()), once, often)),
        [] if slow else draw(st.lists(hidden, max_size=1)),
    )


BRIEF_CREATED = moments.created("pods", BRIEF, NAMESPACE)
NEXT_UNKNOWN, NEXT_READY = (moments.first_after(moment, after=BRIEF_CREATED) for moment in (UNKNOWN, READY))
BRIEF_FAILED = moments.became("pods", BRIEF, {"status": {"phase": "Failed"}}, NAMESPACE)
CHECKS: Mapping[str, Check] = {
    "detection": DETECTION,
    "from fault": FROM_FAULT,
    "taint": TAINT,
    "eviction": EVICTION,
    "stays": STAYS,
    "counted": counted(UNKNOWN, 1, 1, after=CUT, until=READY),
    "counted none": counted(BRIEF_FAILED, 0, 0, after=CUT, until=READY),
    "next taint": TAINTED.after(NEXT_UNKNOWN, windows.taint_pass()),
    "next stays": DELETION.never_after(NEXT_READY, windows.absence(5.0)),
}
MAY_BE_OPEN = ("stays", "counted", "counted none", "next taint", "next stays")
"""Checks whose anchor, or object, not each story has."""


def has_late_sentinel(history: History, latency_s: float) -> bool:
    return any(
        latency > latency_s + 0.01
        for sentinel in history.of_kind("sentinel")
        for latency in sentinel.data["latency_s"].values()
    )


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(stories(), st.floats(0.0, 1.9))
# An event just before the anchor or the end of the wait, while the harness was suspended.
@example((Schedule(9.0, 2.1, 10.0, 0.3, 21.5, ()), Disturbed(0.01, stops=[(40.6, 41.1)])), 0.0)
@example((Schedule(9.0, 2.1, 15.3, 0.3, 21.5, ()), Disturbed(0.01, stops=[(45.9, 46.4)])), 0.0)
# A watch that fell behind just after a sentinel, and was then ended.
@example(
    (
        Schedule(10.55, 0.1, 13.0, 0.3, 45.0, (30.25,)),
        Disturbed(0.01, [Gap("nodes", 33.5, 34.0, False)], [Slow("nodes", 30.1, 33.5, 3.0)]),
    ),
    0.0,
)
# An event near the end of its wait, by a slower watch.
@example((Schedule(12.5, 2.1, 10.0, 0.3, 20.0, ()), Disturbed(0.2)), 0.0)
# An event that came too early, and was delivered late to a suspended harness.
@example((Schedule(9.0, 0.1, None, 0.3, 20.0, ()), Disturbed(0.01, stops=[(28.5, 29.25)])), 0.0)
# An event that came too early, and was delayed between two sentinels.
@example(
    (Schedule(11.0, 2.1, 10.0, 0.3, 21.5, ()), Disturbed(0.01, hidden=[Slow("nodes", 30.5, 30.6, 1.3)])), 0.0
)
# A flap of the Node, or the pod after which it counts, in a gap.
@example(
    (Schedule(12.5, 0.1, 10.0, 0.3, 40.0, (), (6.0, 0.3)), Disturbed(0.01, [Gap("nodes", 5.0, 8.1, True)])),
    0.0,
)
@example(
    (
        Schedule(12.5, 0.1, 10.0, 0.3, 40.0, (), (6.0, 0.3), (5.3,)),
        Disturbed(0.01, [Gap("pods", 4.3, 7.4, False)]),
    ),
    0.0,
)
# A pod that was missing for a part of the time.
@example((Schedule(12.5, 0.1, 10.0, 0.3, 40.0, (), None, (5.3, 25.0, 28.0)), Disturbed(0.01)), 0.0)
# A pod that leaves before the end by more than the slack limit.
@example((Schedule(12.5, 0.1, 10.0, 0.3, 20.0, (), None, (2.0, 38.4)), Disturbed(0.2)), 0.0)
# Stalls in a row before the pod leaves too late.
@example(
    (Schedule(12.5, 0.1, 12.6, 0.3, 40.0, ()), Disturbed(0.01, stops=suspended(44.7, 2.6, 0.6, 4, 0.1))), 0.0
)
def test_verdict_is_the_truth_or_unproven(drawn: tuple[Schedule, Disturbed], phase: float) -> None:
    schedule, disturbed = drawn
    # A suspended harness sends no sentinel.
    times = [t for number in range(42) if (t := phase + number * SENTINEL_PERIOD_S) == disturbed.awake(t)]
    sentinels = {f"s-{number}": t for number, t in enumerate([*times, FENCE_T], 1)}
    story = act(schedule, list(sentinels.values()))
    truth, disturbed_history = record(story, UNDISTURBED, sentinels), record(story, disturbed, sentinels)
    # A sentinel that is late itself explains a write that the API's whole seconds show up to 1 s later still.
    assume(not (disturbed.hidden and has_late_sentinel(disturbed_history, disturbed.latency_s)))
    for name, check in CHECKS.items():
        true = judge(CLAIM, check, truth, configuration())
        verdict = judge(CLAIM, check, disturbed_history, configuration())
        assert name in MAY_BE_OPEN or true.outcome != "unproven", (name, true)
        if "within the slack" in true.reason:
            continue
        if name == "counted none" and "conforms" in (true.outcome, verdict.outcome):
            assert schedule.has_brief(CUT_T + SLACK_LIMIT_S, schedule.ready_t - SLACK_LIMIT_S), (
                true,
                verdict,
            )
        assert verdict.outcome in (true.outcome, "unproven"), (name, true, verdict)
        # A slower watch has more slack.
        if not disturbed.beyond_latency and "within the slack" not in verdict.reason:
            assert verdict.outcome == true.outcome, (name, true, verdict)
