"""Mutations of a conforming judgment's recording that must change its verdict.

Each mutation is a possible recording: later times move with a moved one, and the fence lists what the altered
cluster would have listed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nodeproof.checks import heartbeats, moments, observations
from nodeproof.checks.checks import between, find_event
from nodeproof.checks.shapes import Occurrence
from nodeproof.checks.witnessed import SILENCE_TIMEOUT_S
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import LEASE_NAMESPACE, Configuration
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History
from nodeproof.model.judgment import Check, Judgment, Moment
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import STARTED
from nodeproof.model.slack import Span, slack_s, waited_s
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute
from tests.synthetic_events import CHANGES, insert_moment, written_then

DEVIATES, GAP, NO_ANCHOR = "deviates", "unproven: gap", "unproven: no-anchor"
HOST_TOO_LOADED = "unproven: host-too-loaded"
NOT_INJECTED, COMPONENT_DIED = "unproven: not-injected", "unproven: component-died"
LONG_S = 600.0
"""Longer than any window."""
_MOMENT_S = 0.001


@dataclass(frozen=True)
class Judged:
    """A conforming judgment with its recording."""

    judgment: Judgment
    claim: Claim
    history: History
    configuration: Configuration

    @property
    def check(self) -> Check:
        """The judged check."""
        return self.judgment.check

    def moment(self, part: str) -> Moment:
        """Return one of the check's moments."""
        return Moment.from_json(self.check.args[part])


@dataclass(frozen=True)
class Altered:
    """A mutated recording, and the labels that the verdict on it may have."""

    how: str
    expected: tuple[str, ...]
    history: History
    configuration: Configuration


def falsified(judged: Judged) -> Iterator[Altered]:
    """Yield all mutations that must change this judgment's verdict."""
    for altered in _BY_CHECK[judged.check.name](judged):
        is_moved = len(altered.history.late) > len(judged.history.late)
        yield replace(altered, history=revised(altered.history)) if is_moved else altered


def _after(judged: Judged) -> Iterator[Altered]:
    event, anchor = judged.moment("event"), judged.moment("anchor")
    start, window = _start(judged), _window(judged)
    occurrence = find_event(judged.history, event, start, judged.configuration)
    assert occurrence is not None
    received_t = max(start.t, float(start.detail.get("received_t", start.t)))
    if occurrence.t > received_t:
        # On a machine, CPU waits since the anchor may excuse this delay.
        within = Span(start.t, occurrence.t)
        late_s = start.t + window.high_s - occurrence.t + 1.0 + waited_s(judged.history, within, [within])
        late = _later(judged.history, occurrence.t, late_s, healing_stays="healing_took_s" in start.detail)
        yield _altered(judged, "the event is late", late, DEVIATES)
    if occurrence.t > received_t and window.low_s > 1.0:
        early = _sooner(judged.history, received_t, occurrence.t, start.t + window.low_s - 0.5)
        yield _altered(judged, "the event is early", early, DEVIATES)
    before_t = start.t + window.low_s - 1.0
    if window.low_s <= 0 and event.name in CHANGES and _is_possible(judged.history, event, before_t):
        early = insert_moment(judged.history, event, before_t)
        yield _altered(judged, "the event comes before its anchor", early, DEVIATES)
    if anchor.name == "last-heartbeat":
        node, beat_t = str(anchor.args["node"]), occurrence.t - 1.0
        expected = NOT_INJECTED if _is_silenced(judged.history, node, beat_t) else DEVIATES
        beat = _renewed(judged.history, node, beat_t)
        yield _altered(judged, "a heartbeat comes right before the event", beat, expected)
    if event.name == "made" and occurrence.t == start.t:
        otherwise = _created_differently(judged.history, event, occurrence.t)
        yield _altered(judged, "the object is created differently", otherwise, DEVIATES)
    else:
        away = _later(
            _without(judged.history, event, min(start.t + _MOMENT_S, occurrence.t)), occurrence.t, LONG_S
        )
        yield _altered(judged, "the event is missing", away, DEVIATES)
    yield from _without_anchor(judged, anchor)
    for resource in moments.resources(event):
        history = _with_gap(judged.history, resource, occurrence.t - 0.5, occurrence.t + 0.5)
        yield _altered(judged, f"the watch of {resource} has a gap", history, GAP)


def _is_silenced(history: History, node: str, t: float) -> bool:
    """Return whether a fault should keep a node's kubelet from the API server at a time (s)."""
    return any(
        silence.node == node and silence.span.since_t < t < silence.span.until_t
        for silence in heartbeats.silences(history)
    )


def _created_differently(history: History, event: Moment, t: float) -> History:
    """Return a recording in which the object created at `t` (s) does not match the moment."""

    def without(entry: Entry) -> Entry:
        if entry.t != t or entry.kind != "watch" or entry.data["resource"] != event.args["resource"]:
            return entry
        altered = copy.deepcopy(dict(entry.data["object"]))
        for part, wanted in event.args["pattern"].items():
            for name in wanted:
                altered[part].pop(name)
        return replace(entry, data={**entry.data, "object": altered})

    return History.of(map(without, history.entries))


def _never(judged: Judged) -> Iterator[Altered]:
    event, anchor = judged.moment("event"), judged.moment("anchor")
    start, window = _start(judged), _window(judged)
    for at, t in (("first", start.t + _MOMENT_S), ("last", start.t + window.high_s - _MOMENT_S)):
        history = insert_moment(judged.history, event, t)
        # The order of events is known within one watch, not between two.
        in_order = at == "first" and moments.resources(event) == moments.resources(anchor)
        expected = DEVIATES if in_order else GAP
        yield _altered(judged, f"the event comes at the {at} moment", history, expected)
    middle = insert_moment(judged.history, event, start.t + window.high_s / 2)
    yield _altered(judged, "the event comes in the middle", middle, DEVIATES)
    if moments.resources(event):
        unfenced = _drop(judged.history, lambda entry: entry.kind == "fence")
        yield _altered(judged, "the fence is dropped", unfenced, GAP)
    end_t = start.t + window.high_s
    for resource in moments.resources(event):
        history = _with_gap(judged.history, resource, end_t - 0.5, end_t + 0.5)
        yield _altered(judged, f"the watch of {resource} has a gap at the end", history, GAP)
    if "by" in event.args:
        yield from _without_source(judged, str(event.args["by"]))
    yield from _without_anchor(judged, anchor)


def _without_anchor(judged: Judged, anchor: Moment) -> Iterator[Altered]:
    """Remove the anchor, unless it is the last heartbeat: the one before it would take its place."""
    if anchor.name == "last-heartbeat":
        return
    history = _without(judged.history, anchor, float("-inf"))
    expected = [NOT_INJECTED, COMPONENT_DIED] if anchor.name == "fault-step" else [NO_ANCHOR]
    if any(gap.data["resource"] in moments.resources(anchor) for gap in history.of_kind("gap")):
        expected = [GAP]
    yield _altered(judged, "the anchor is missing", history, *expected)


def _renewals(judged: Judged) -> Iterator[Altered]:
    node = str(judged.check.args["node"])
    renewed = list(heartbeats.lease_renewals(judged.history, node))
    middle = renewed[len(renewed) // 2]
    received_t = float(middle.detail["received_t"])

    def is_lease(entry: Entry) -> bool:
        is_watched = entry.kind == "watch" and entry.data["resource"] == "leases"
        return is_watched and bool(entry.data["object"]["metadata"]["name"] == node)

    early = _renewed(judged.history, node, middle.t + judged.configuration["R"] / 2)
    yield _altered(judged, "one renewal is early", early, DEVIATES)
    missing = _drop(judged.history, lambda entry: is_lease(entry) and entry.t == received_t)
    yield _altered(judged, "one renewal is missing", missing, DEVIATES)
    gap = _with_gap(judged.history, "leases", received_t - 0.5, received_t + 0.5)
    yield _altered(judged, "the watch of leases has a gap", gap, GAP)
    few = _drop(judged.history, lambda entry: is_lease(entry) and entry.t > received_t)
    # In a recording that ends soon there are merely too few.
    yield _altered(judged, "half of the renewals are missing", few, DEVIATES, GAP)


def _default(judged: Judged) -> Iterator[Altered]:
    constant = next(
        constant for constant in judged.claim.constants if constant.name == judged.check.args["constant"]
    )
    for how, expected, change in (
        ("the component reports another value", DEVIATES, _another),
        ("the component reports no such setting", DEVIATES, lambda _value: None),
    ):
        reported = copy.deepcopy(dict(judged.configuration.reported))
        _change(reported[constant.component], constant.reported.split("."), change)
        yield Altered(how, (expected,), judged.history, replace(judged.configuration, reported=reported))
    silent = {
        name: value for name, value in judged.configuration.reported.items() if name != constant.component
    }
    configuration = replace(judged.configuration, reported=silent)
    yield Altered("the component was not read", (GAP,), judged.history, configuration)


def _repeated_observation(judged: Judged) -> Iterator[Altered]:
    within = _span(judged)
    about = (judged.check.args["what"], judged.check.args["subject"])

    def is_observation(entry: Entry) -> bool:
        return entry.kind == "observed" and (entry.data["what"], entry.data["subject"]) == about

    observations = [
        entry
        for entry in judged.history.entries
        if is_observation(entry) and within.since_t < entry.t < within.until_t
    ]
    assert observations
    for other in _other_values(judged.check):
        altered = replace(observations[-1], data={**observations[-1].data, "value": other})
        history = History.of(
            altered if entry is observations[-1] else entry for entry in judged.history.entries
        )
        yield _altered(judged, f"one observation shows {other!r}", history, DEVIATES)
    yield _altered(judged, "no observation was made", _drop(judged.history, is_observation), GAP)
    yield from _without_bounds(judged)


def _other_values(check: Check) -> list[str]:
    if check.name == "not-listed":
        return [str(check.args["line"])]
    if check.name != "amounts-to":
        return ["something else"]
    low, high = int(check.args["low"]), int(check.args["high"])
    return [str(high + 1), "max", *([str(low - 1)] if low > 0 else [])]


def _lifetime(judged: Judged) -> Iterator[Altered]:
    pod, within = str(judged.check.args["subject"]), _span(judged)
    middle = (within.since_t + within.until_t) / 2
    silent_s = SILENCE_TIMEOUT_S + 1.0

    def is_message(entry: Entry) -> bool:
        return entry.kind == "told" and entry.data["by"] == pod

    silence = _drop(judged.history, lambda entry: is_message(entry) and abs(entry.t - middle) < silent_s)
    yield _altered(judged, "the probe pod is silent for too long", silence, DEVIATES)
    restart = Entry(middle, "told", {"by": pod, "what": STARTED})
    yield _altered(
        judged, "the probe pod is restarted", History.of([*judged.history.entries, restart]), DEVIATES
    )
    uncollected = _drop(judged.history, lambda entry: entry.kind == "heard" and entry.data["by"] == pod)
    yield _altered(judged, "the probe pod was not collected", uncollected, GAP)
    yield from _without_bounds(judged)


def _without_bounds(judged: Judged) -> Iterator[Altered]:
    for part in ("since", "until"):
        if part in judged.check.args:
            yield from _without_anchor(judged, judged.moment(part))


def _observed(judged: Judged) -> Iterator[Altered]:
    """Yield recordings with another observed value, or without observation."""
    first_id = judged.check.args["seen"]["id"]

    def another(entry: Entry) -> Entry:
        if entry.data.get("id") != first_id:
            return entry
        value = _other(entry.data["value"], judged.check.args.get("pattern"))
        return replace(entry, data={**entry.data, "value": value})

    other = History.of(map(another, judged.history.entries))
    yield _altered(judged, "another value was observed", other, DEVIATES)
    first_observation = next(entry for entry in judged.history.entries if entry.data.get("id") == first_id)
    still = Entry(first_observation.t + _MOMENT_S, "stall", {"late_s": LONG_S})
    yield _altered(
        judged, "the host was stalled", History.of([*judged.history.entries, still]), HOST_TOO_LOADED
    )
    unseen = _drop(judged.history, lambda entry: entry.data.get("id") == first_id)
    yield _altered(judged, "no observation was made", unseen, GAP)


def _other(value: Json, pattern: Json) -> Json:
    """Return a value that does not match a pattern; without one, another value."""
    if isinstance(pattern, Mapping) and "$not" in pattern:
        return _matching_value(pattern["$not"])
    if isinstance(value, Mapping):
        parts = pattern if isinstance(pattern, Mapping) else {}
        return {**value, **{name: _other(value.get(name), wanted) for name, wanted in parts.items()}}
    return value + 1000 if isinstance(value, int | float) else ""


def _matching_value(pattern: Json) -> Json:
    """Return a value that matches a text pattern."""
    return str(next(iter(pattern.values()))) if isinstance(pattern, Mapping) else pattern


def _counted(judged: Judged) -> Iterator[Altered]:
    """Yield recordings with too many or too few messages, and with an incomplete source."""
    event, args = judged.moment("event"), judged.check.args
    if "by" not in event.args:
        yield from _counted_by_a_watch(judged, event)
        return
    by, within = str(event.args["by"]), _counted_span(judged)
    entries = [entry for entry in judged.history.of_kind("told") if entry.data["by"] == by]
    middle = (within.since_t + within.until_t) / 2
    more = [
        Entry(middle + number * _MOMENT_S, "told", {"by": by, "what": str(event.args["what"])})
        for number in range(int(args["high"]) + 1)
    ]
    too_often = History.of([*judged.history.entries, *more])
    yield _altered(judged, "the event occurs too often", too_often, DEVIATES)
    if int(args["low"]) > 0:
        silent = _drop(judged.history, lambda entry: entry in entries)
        yield _altered(judged, "the event never occurs", silent, DEVIATES)

    yield from _without_source(judged, by)


def _counted_by_a_watch(judged: Judged, event: Moment) -> Iterator[Altered]:
    """Yield recordings without the events, without evidence, and without the bounds."""
    within = _counted_span(judged)
    if int(judged.check.args["low"]) > 0:
        yield _altered(
            judged, "the event never occurs", _without(judged.history, event, within.since_t), DEVIATES
        )
    for resource in moments.resources(event):
        gap = _with_gap(judged.history, resource, within.until_t - 0.5, within.until_t + 0.5)
        yield _altered(judged, f"the watch of {resource} has a gap at the end", gap, GAP)
    for part in ("anchor", "until"):
        yield from _without_anchor(judged, judged.moment(part))


def _without_source(judged: Judged, by: str) -> Iterator[Altered]:
    """Yield recordings with an incomplete and with an uncollected source."""

    def is_collection(entry: Entry) -> bool:
        return entry.kind == "heard" and entry.data["by"] == by

    def unsure(entry: Entry) -> Entry:
        return replace(entry, data={**entry.data, "unsure": "altered"}) if is_collection(entry) else entry

    unsure_history = History.of(map(unsure, judged.history.entries))
    yield _altered(judged, "the source is incomplete", unsure_history, GAP)
    yield _altered(judged, "the source was not collected", _drop(judged.history, is_collection), GAP)


def _counted_span(judged: Judged) -> Span:
    return between(judged.history, judged.moment("anchor"), judged.moment("until"))


_BY_CHECK: Mapping[str, Callable[[Judged], Iterator[Altered]]] = {
    "after": _after,
    "never": _never,
    "renewals": _renewals,
    "default": _default,
    "shown-throughout": _repeated_observation,
    "listed": _repeated_observation,
    "not-listed": _repeated_observation,
    "amounts-to": _repeated_observation,
    "counted": _counted,
    "lives-on": _lifetime,
    "shows": _observed,
    "same-as": _observed,
    "grew": _observed,
}


def _altered(judged: Judged, how: str, history: History, *expected: str) -> Altered:
    return Altered(how, expected, _with_new_fence(history), judged.configuration)


def _start(judged: Judged) -> Occurrence:
    start = moments.find(judged.history, judged.moment("anchor"))
    assert start is not None
    return start


def _window(judged: Judged) -> Window:
    context = WindowContext(judged.configuration, slack_s(judged.history, judged.configuration))
    return compute(WindowSpec.from_json(judged.check.args["window"]), context, _start(judged).detail)


def _span(judged: Judged) -> Span:
    since = judged.moment("since") if "since" in judged.check.args else None
    return observations.span(judged.history, since, judged.moment("until"))


# Possible histories


def _drop(history: History, is_dropped: Callable[[Entry], bool]) -> History:
    return History.of(entry for entry in history.entries if not is_dropped(entry))


def _moved(history: History, moved: Callable[[float], float]) -> History:
    """Shift the whole recording in time; values in objects stay, except for their times."""

    def at_new_time(entry: Entry) -> Entry:
        moved_entry = replace(entry, t=moved(entry.t), data=_moved_times(entry.data, moved))
        return moved_entry if moved_entry.t == entry.t else written_then(history, moved_entry)

    return History.of(map(at_new_time, history.entries))


def _moved_times(data: Mapping[str, Json], moved: Callable[[float], float]) -> Mapping[str, Json]:
    times: dict[str, Json] = {name: moved(data[name]) for name in ("since", "asked_t") if name in data}
    if "sent_t" in data:
        times["sent_t"] = {name: moved(t) for name, t in data["sent_t"].items()}
    return {**data, **times}


def _later(history: History, from_t: float, by_s: float, *, healing_stays: bool = False) -> History:
    """Delay all entries from one time on, except for the fault steps if windows count from a heal."""
    moved = _moved(history, lambda t: t + by_s if t >= from_t else t)
    if not healing_stays:
        return moved
    stay = [entry for entry in history.entries if entry.kind == "fault"]
    return History.of([*_drop(moved, lambda entry: entry.kind == "fault").entries, *stay])


def _sooner(history: History, received_t: float, event_t: float, target_t: float) -> History:
    """Move the event from `event_t` to `target_t`; entries between `received_t` and it move closer."""
    share = (max(target_t, received_t + _MOMENT_S) - received_t) / (event_t - received_t)

    def moved(t: float) -> float:
        if t <= received_t:
            return t
        return (
            received_t + (t - received_t) * share if t < event_t else t - (event_t - received_t) * (1 - share)
        )

    return _moved(history, moved)


def _without(history: History, moment: Moment, since_t: float) -> History:
    """Return a recording in which a moment never occurs, without the entries at which it is found."""
    event = moments.find(history, moment, since_t)
    while event is not None:
        t = event.t
        history = History.of(
            part
            for entry in history.entries
            for part in (
                [entry]
                if entry.t != t or not _shows_moment(entry, moment)
                else _without_change(history, entry)
            )
        )
        next_event = moments.find(history, moment, since_t)
        assert next_event is None or next_event.t != t, f"{moment} cannot be removed"
        event = next_event
    return history


def _without_change(history: History, entry: Entry) -> list[Entry]:
    """Return no entry, or one with the unchanged object if it delivers a sentinel."""
    if entry.kind != "watch":
        return []
    meta = entry.data["object"]["metadata"]
    sentinel = (meta.get("annotations") or {}).get(SENTINEL_ANNOTATION)
    if history.sentinel_t(entry.data["resource"], sentinel or "") != entry.t:
        return []
    versions = history.versions(entry.data["resource"], meta.get("namespace", ""), meta["name"])
    before = copy.deepcopy(dict(next(old for old in reversed(versions) if old.t < entry.t).object))
    before["metadata"] |= {"annotations": meta["annotations"], "resourceVersion": meta["resourceVersion"]}
    return [replace(entry, data={**entry.data, "object": before})]


def _shows_moment(entry: Entry, moment: Moment) -> bool:
    read_from = moments.resources(moment)
    if read_from:
        return entry.kind == "watch" and entry.data["resource"] in read_from
    return entry.kind in ("fault", "told", "machine", "component", "action", "observed")


def _renewed(history: History, node: str, t: float) -> History:
    """Return a recording in which the node also renewed its Lease at `t` (s), delivered at once."""
    lease = [version for version in history.versions("leases", LEASE_NAMESPACE, node) if version.t < t][-1]
    clocks = (reading.data for reading in history.of_kind("clock") if reading.data["node"] == node)
    ahead_s = next((float(clock["offset_s"]) for clock in clocks), 0.0)
    wall = t + float(history.begun["wall_offset_s"]) + ahead_s
    renewed = copy.deepcopy(dict(lease.object))
    renewed["spec"]["renewTime"] = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    data = {"resource": "leases", "type": "MODIFIED", "object": renewed}
    return History.of([*history.entries, Entry(t + _MOMENT_S, "watch", data)])


def _is_possible(history: History, moment: Moment, t: float) -> bool:
    """Return whether the object of a moment existed at `t` (s) in another state."""
    return not moments.unable(history, moment, Span.at(t))


def _with_gap(history: History, resource: str, since_t: float, until_t: float) -> History:
    gap = Entry(until_t, "gap", {"resource": resource, "since": since_t, "reason": "the connection broke"})
    return History.of([*history.entries, gap])


def revised(history: History) -> History:
    """Give all writes revisions in the order of their receipt, after entries were moved."""

    def revision(entry: Entry) -> int:
        return int(entry.data["object"]["metadata"]["resourceVersion"])

    writes = [entry for entry in history.of_kind("watch") if entry.data["type"] != "BOOKMARK"]
    revisions = {id(entry): new for entry, new in zip(writes, sorted(map(revision, writes)), strict=True)}

    def with_revision(entry: Entry) -> Entry:
        if id(entry) not in revisions:
            return entry
        written = entry.data["object"]
        metadata = {**written["metadata"], "resourceVersion": str(revisions[id(entry)])}
        return replace(entry, data={**entry.data, "object": {**written, "metadata": metadata}})

    return _with_new_fence(History.of(map(with_revision, history.entries)))


def _with_new_fence(history: History) -> History:
    """Make the last fence list what such a cluster would have listed."""
    fences = history.of_kind("fence")
    if not fences:
        return history
    last = fences[-1]
    listed = {
        name: {
            **fenced,
            "received": history.received(
                name, history.sentinel_t(name, last.data["sentinels"][name]) or last.t
            ),
            "objects": dict(history.folded(name, int(fenced["rv"]))),
        }
        for name, fenced in last.data["listed"].items()
    }
    fence = replace(last, data={**last.data, "listed": listed})
    return History.of(fence if entry is last else entry for entry in history.entries)


def _change(document: Json, path: list[str], change: Callable[[Json], Json]) -> None:
    for part in path[:-1]:
        document = document[part]
    document[path[-1]] = change(document[path[-1]])


def _another(value: Json) -> Json:
    return not value if isinstance(value, bool) else "7s" if isinstance(value, str) else value + 7
