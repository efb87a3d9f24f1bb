"""A judgment that conforms, and all that must change its verdict: another cluster, or a recording with holes.

Whatever is changed stays a recording that could be: times are moved with all that follows them, and the fence
holds what the altered cluster would have listed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nodeproof.checks import counting, heartbeats, looks, moments
from nodeproof.checks.occurrence import Occurrence
from nodeproof.checks.read_off import find_event
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import LEASE_NAMESPACE, Configuration
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History
from nodeproof.model.judgment import Check, Judgment, Moment
from nodeproof.model.slack import Span, slack_s
from nodeproof.model.testimony import STARTED
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Ground, Window, WindowSpec, compute
from tests.put_in import CHANGES, put_in, written_then

Json = Any
DEVIATES, GAP, NO_ANCHOR = "deviates", "unproven: gap", "unproven: no-anchor"
HOST_TOO_LOADED = "unproven: host-too-loaded"
NOT_INJECTED, COMPONENT_DIED = "unproven: not-injected", "unproven: component-died"
LONG_S = 600.0
"""Longer than any window."""
_MOMENT_S = 0.001


@dataclass(frozen=True)
class Judged:
    """A judgment that conforms, with all that it comes from."""

    judgment: Judgment
    claim: Claim
    history: History
    configuration: Configuration

    @property
    def check(self) -> Check:
        """What was asked."""
        return self.judgment.check

    def moment(self, part: str) -> Moment:
        """One of the check's moments."""
        return Moment.from_json(self.check.args[part])


@dataclass(frozen=True)
class Altered:
    """The same judgment of another cluster or another recording, and the labels that its verdict may have."""

    how: str
    expected: tuple[str, ...]
    history: History
    configuration: Configuration


def falsified(judged: Judged) -> Iterator[Altered]:
    """Everything that must change this judgment's verdict."""
    return _BY_CHECK[judged.check.name](judged)


def _after(judged: Judged) -> Iterator[Altered]:
    event, anchor = judged.moment("event"), judged.moment("anchor")
    start, window = _start(judged), _window(judged)
    found = find_event(judged.history, event, start, judged.configuration)
    assert found is not None
    known_t = max(start.t, float(start.detail.get("received_t", start.t)))
    if found.t > known_t:
        late_s = start.t + window.high_s - found.t + 1.0
        late = _later(judged.history, found.t, late_s, healing_stays="healing_took_s" in start.detail)
        yield _altered(judged, "the event is late", DEVIATES, late)
    if found.t > known_t and window.low_s > 1.0:
        early = _sooner(judged.history, known_t, found.t, start.t + window.low_s - 0.5)
        yield _altered(judged, "the event is early", DEVIATES, early)
    before_t = start.t + window.low_s - 1.0
    if window.low_s <= 0 and event.name in CHANGES and _can_come(judged.history, event, before_t):
        early = put_in(judged.history, event, before_t)
        yield _altered(judged, "the event comes before its anchor", DEVIATES, early)
    if anchor.name == "last-heartbeat":
        beat = _renewed(judged.history, str(anchor.args["node"]), found.t - 1.0)
        yield _altered(judged, "a heartbeat comes right before the event", DEVIATES, beat)
    if event.name == "made" and found.t == start.t:
        otherwise = _made_otherwise(judged.history, event, found.t)
        yield _altered(judged, "it was made otherwise", DEVIATES, otherwise)
    else:
        away = _later(_without(judged.history, event, min(start.t + _MOMENT_S, found.t)), found.t, LONG_S)
        yield _altered(judged, "the event is taken away", DEVIATES, away)
    yield from _without_anchor(judged, anchor)
    for resource in moments.resources(event):
        history = _blind(judged.history, resource, found.t - 0.5, found.t + 0.5)
        yield _altered(judged, f"the watch of {resource} is blind", GAP, history)


def _made_otherwise(history: History, event: Moment, t: float) -> History:
    """A recording in which the object that is made at `t` (s) lacks what the moment wants it to have."""

    def without(entry: Entry) -> Entry:
        if entry.t != t or entry.kind != "watch" or entry.data["resource"] != event.args["resource"]:
            return entry
        made = copy.deepcopy(dict(entry.data["object"]))
        for part, wanted in event.args["pattern"].items():
            for name in wanted:
                made[part].pop(name)
        return replace(entry, data={**entry.data, "object": made})

    return History.of(map(without, history.entries))


def _never(judged: Judged) -> Iterator[Altered]:
    event, anchor = judged.moment("event"), judged.moment("anchor")
    start, window = _start(judged), _window(judged)
    for at, t in (("first", start.t + _MOMENT_S), ("last", start.t + window.high_s - _MOMENT_S)):
        history = put_in(judged.history, event, t)
        # Which of two watches is ahead is not known; of one that delivers both it is.
        in_order = at == "first" and moments.resources(event) == moments.resources(anchor)
        expected = DEVIATES if in_order else GAP
        yield _altered(judged, f"the event comes at the {at} moment", expected, history)
    middle = put_in(judged.history, event, start.t + window.high_s / 2)
    yield _altered(judged, "the event comes in the middle", DEVIATES, middle)
    if moments.resources(event):
        unfenced = _drop(judged.history, lambda entry: entry.kind == "fence")
        yield _altered(judged, "the fence is dropped", GAP, unfenced)
    middle_t = start.t + window.high_s / 2
    for resource in moments.resources(event):
        history = _blind(judged.history, resource, middle_t - 0.5, middle_t + 0.5)
        yield _altered(judged, f"the watch of {resource} is blind", GAP, history)
    if "by" in event.args:
        yield from _without_source(judged, str(event.args["by"]))
    yield from _without_anchor(judged, anchor)


def _without_anchor(judged: Judged, anchor: Moment) -> Iterator[Altered]:
    """The last heartbeat can't be taken away: the one before it takes its place."""
    if anchor.name == "last-heartbeat":
        return
    history = _fenced_anew(_without(judged.history, anchor, float("-inf")))
    expected = (NOT_INJECTED, COMPONENT_DIED) if anchor.name == "fault-step" else (NO_ANCHOR,)
    if any(gap.data["resource"] in moments.resources(anchor) for gap in history.of_kind("gap")):
        expected = (GAP,)
    yield Altered("the anchor is taken away", expected, history, judged.configuration)


def _renewals(judged: Judged) -> Iterator[Altered]:
    node = str(judged.check.args["node"])
    renewed = list(heartbeats.lease_renewals(judged.history, node))
    middle = renewed[len(renewed) // 2]
    received_t = float(middle.detail["received_t"])
    early = _renewed(judged.history, node, middle.t + judged.configuration["R"] / 2)
    yield _altered(judged, "one renewal is early", DEVIATES, early)
    yield _altered(
        judged, "one renewal is missing", DEVIATES, _drop(judged.history, _is_lease(node, received_t))
    )
    blind = _blind(judged.history, "leases", received_t - 0.5, received_t + 0.5)
    yield _altered(judged, "the watch of leases is blind", GAP, blind)
    few = _drop(judged.history, lambda entry: _is_lease(node)(entry) and entry.t > received_t)
    # Of a recording that ends soon they are only too few.
    yield Altered(
        "half of the renewals are missing", (DEVIATES, GAP), _fenced_anew(few), judged.configuration
    )


def _default(judged: Judged) -> Iterator[Altered]:
    constant = next(each for each in judged.claim.constants if each.name == judged.check.args["constant"])
    for how, expected, change in (
        ("the component reports another value", DEVIATES, _another),
        ("the component reports no such setting", DEVIATES, lambda _value: None),
    ):
        reported = copy.deepcopy(dict(judged.configuration.reported))
        _change(reported[constant.component], constant.reported.split("."), change)
        yield Altered(how, (expected,), judged.history, replace(judged.configuration, reported=reported))
    silent = {
        name: told for name, told in judged.configuration.reported.items() if name != constant.component
    }
    configuration = replace(judged.configuration, reported=silent)
    yield Altered("the component was not asked", (GAP,), judged.history, configuration)


def _look(judged: Judged) -> Iterator[Altered]:
    span = _span(judged)
    about = (judged.check.args["what"], judged.check.args["subject"])

    def is_look(entry: Entry) -> bool:
        return entry.kind == "observed" and (entry.data["what"], entry.data["subject"]) == about

    seen = [entry for entry in judged.history.entries if is_look(entry) and span[0] < entry.t < span[1]]
    assert seen
    for other in _other_values(judged.check):
        told = replace(seen[-1], data={**seen[-1].data, "value": other})
        history = History.of(told if entry is seen[-1] else entry for entry in judged.history.entries)
        yield _altered(judged, f"one look shows {other!r}", DEVIATES, history)
    yield _altered(judged, "nobody looked", GAP, _drop(judged.history, is_look))
    yield from _without_bounds(judged)


def _other_values(check: Check) -> list[str]:
    if check.name == "not-listed":
        return [str(check.args["line"])]
    if check.name != "amounts-to":
        return ["something else"]
    low, high = int(check.args["low"]), int(check.args["high"])
    return [str(high + 1), "max", *([str(low - 1)] if low > 0 else [])]


def _life(judged: Judged) -> Iterator[Altered]:
    pod, (since_t, until_t) = str(judged.check.args["subject"]), _span(judged)
    middle = (since_t + until_t) / 2
    silent_s = looks.SILENCE_LIMIT_S + 1.0

    def is_told(entry: Entry) -> bool:
        return entry.kind == "told" and entry.data["by"] == pod

    silence = _drop(judged.history, lambda entry: is_told(entry) and abs(entry.t - middle) < silent_s)
    yield _altered(judged, "it is silent for too long", DEVIATES, silence)
    anew = Entry(middle, "told", {"by": pod, "what": STARTED})
    yield _altered(judged, "it is started anew", DEVIATES, History.of([*judged.history.entries, anew]))
    unheard = _drop(judged.history, lambda entry: entry.kind == "heard" and entry.data["by"] == pod)
    yield _altered(judged, "nobody heard it", GAP, unheard)
    yield from _without_bounds(judged)


def _without_bounds(judged: Judged) -> Iterator[Altered]:
    for part in ("since", "until"):
        if part in judged.check.args:
            yield from _without_anchor(judged, judged.moment(part))


def _seen(judged: Judged) -> Iterator[Altered]:
    """What was seen once: another value, or nobody looked."""
    seen_id = judged.check.args["seen"]["id"]

    def another(entry: Entry) -> Entry:
        if entry.data.get("id") != seen_id:
            return entry
        value = _other(entry.data["value"], judged.check.args.get("pattern"))
        return replace(entry, data={**entry.data, "value": value})

    other = History.of(map(another, judged.history.entries))
    yield _altered(judged, "another value was seen", DEVIATES, other)
    look = next(entry for entry in judged.history.entries if entry.data.get("id") == seen_id)
    still = Entry(look.t + _MOMENT_S, "stall", {"late_s": LONG_S})
    yield _altered(
        judged, "the host stood still", HOST_TOO_LOADED, History.of([*judged.history.entries, still])
    )
    unseen = _drop(judged.history, lambda entry: entry.data.get("id") == seen_id)
    yield _altered(judged, "nobody looked", GAP, unseen)


def _other(value: Json, pattern: Json) -> Json:
    """A value that does not match a pattern; without one, another value."""
    if isinstance(pattern, Mapping) and "$not" in pattern:
        return _such(pattern["$not"])
    if isinstance(value, Mapping):
        parts = pattern if isinstance(pattern, Mapping) else {}
        return {**value, **{name: _other(value.get(name), wanted) for name, wanted in parts.items()}}
    return value + 1000 if isinstance(value, int | float) else ""


def _such(pattern: Json) -> Json:
    """A value that matches a pattern of text."""
    return str(next(iter(pattern.values()))) if isinstance(pattern, Mapping) else pattern


def _counted(judged: Judged) -> Iterator[Altered]:
    """Of what a source told: too often, too rarely, and a source that does not vouch."""
    event, args = judged.moment("event"), judged.check.args
    if "by" not in event.args:
        yield from _counted_by_a_watch(judged, event)
        return
    by, (since_t, until_t) = str(event.args["by"]), _counted_span(judged)
    told = [entry for entry in judged.history.of_kind("told") if entry.data["by"] == by]
    middle = (since_t + until_t) / 2
    more = [
        Entry(middle + number * _MOMENT_S, "told", {"by": by, "what": str(event.args["what"])})
        for number in range(int(args["high"]) + 1)
    ]
    often = History.of([*judged.history.entries, *more])
    yield _altered(judged, "it came too often", DEVIATES, often)
    if int(args["low"]) > 0:
        silent = _drop(judged.history, lambda entry: entry in told)
        yield _altered(judged, "it never came", DEVIATES, silent)

    yield from _without_source(judged, by)


def _counted_by_a_watch(judged: Judged, event: Moment) -> Iterator[Altered]:
    """What never came, what nobody could have seen, and bounds that did not come."""
    since_t, until_t = _counted_span(judged)
    if int(judged.check.args["low"]) > 0:
        yield _altered(judged, "it never came", DEVIATES, _without(judged.history, event, since_t))
    for resource in moments.resources(event):
        middle = (since_t + until_t) / 2
        blind = _blind(judged.history, resource, middle - 0.5, middle + 0.5)
        yield _altered(judged, f"the watch of {resource} is blind", GAP, blind)
    for part in ("anchor", "until"):
        yield from _without_anchor(judged, judged.moment(part))


def _without_source(judged: Judged, by: str) -> Iterator[Altered]:
    """What tells vouches for nothing, or was not heard."""

    def is_heard(entry: Entry) -> bool:
        return entry.kind == "heard" and entry.data["by"] == by

    def unsure(entry: Entry) -> Entry:
        return replace(entry, data={**entry.data, "unsure": "altered"}) if is_heard(entry) else entry

    unvouched = History.of(map(unsure, judged.history.entries))
    yield _altered(judged, "the source vouches for nothing", GAP, unvouched)
    yield _altered(judged, "nobody heard the source", GAP, _drop(judged.history, is_heard))


def _counted_span(judged: Judged) -> tuple[float, float]:
    within = counting.span(judged.history, judged.check.args)
    assert not isinstance(within, Verdict)
    return within.since_t, within.until_t


_BY_CHECK: Mapping[str, Callable[[Judged], Iterator[Altered]]] = {
    "after": _after,
    "never": _never,
    "renewals": _renewals,
    "default": _default,
    "shown-throughout": _look,
    "listed": _look,
    "not-listed": _look,
    "amounts-to": _look,
    "counted": _counted,
    "lives-on": _life,
    "shows": _seen,
    "same-as": _seen,
    "grew": _seen,
}


def _altered(judged: Judged, how: str, expected: str, history: History) -> Altered:
    return Altered(how, (expected,), _fenced_anew(history), judged.configuration)


def _start(judged: Judged) -> Occurrence:
    start = moments.find(judged.history, judged.moment("anchor"))
    assert start is not None
    return start


def _window(judged: Judged) -> Window:
    ground = Ground(judged.configuration, slack_s(judged.history, judged.configuration))
    return compute(WindowSpec.from_json(judged.check.args["window"]), ground, _start(judged).detail)


def _span(judged: Judged) -> tuple[float, float]:
    span = looks.span(judged.history, judged.check.args)
    assert not isinstance(span, Verdict)
    return span


# Histories that could be


def _drop(history: History, gone: Callable[[Entry], bool]) -> History:
    return History.of(entry for entry in history.entries if not gone(entry))


def _moved(history: History, moved: Callable[[float], float]) -> History:
    """Every time of the recording moved; what was written down in an object stays, but for when that was."""

    def at_its_time(entry: Entry) -> Entry:
        then = replace(entry, t=moved(entry.t), data=_moved_times(entry.data, moved))
        return then if then.t == entry.t else written_then(history, then)

    return History.of(map(at_its_time, history.entries))


def _moved_times(data: Mapping[str, Json], moved: Callable[[float], float]) -> Mapping[str, Json]:
    times: dict[str, Json] = {name: moved(data[name]) for name in ("since", "asked_t") if name in data}
    if "sent_t" in data:
        times["sent_t"] = {name: moved(t) for name, t in data["sent_t"].items()}
    return {**data, **times}


def _later(history: History, from_t: float, by_s: float, *, healing_stays: bool = False) -> History:
    """From one time on all is later; but for a healing, where windows count from its end."""
    moved = _moved(history, lambda t: t + by_s if t >= from_t else t)
    if not healing_stays:
        return moved
    stay = [entry for entry in history.entries if entry.kind == "fault"]
    return History.of([*_drop(moved, lambda entry: entry.kind == "fault").entries, *stay])


def _sooner(history: History, known_t: float, found_t: float, wanted_t: float) -> History:
    """What was at `found_t` is at `wanted_t`; what lies between `known_t` and it draws together."""
    share = (max(wanted_t, known_t + _MOMENT_S) - known_t) / (found_t - known_t)

    def moved(t: float) -> float:
        if t <= known_t:
            return t
        return known_t + (t - known_t) * share if t < found_t else t - (found_t - known_t) * (1 - share)

    return _moved(history, moved)


def _without(history: History, moment: Moment, since_t: float) -> History:
    """A recording in which a moment never comes: every entry at which it is found is away."""
    found = moments.find(history, moment, since_t)
    while found is not None:
        t = found.t
        history = History.of(
            kept
            for entry in history.entries
            for kept in ([entry] if entry.t != t or not _tells(entry, moment) else _undone(history, entry))
        )
        again = moments.find(history, moment, since_t)
        assert again is None or again.t != t, f"{moment} cannot be taken away"
        found = again
    return history


def _undone(history: History, entry: Entry) -> list[Entry]:
    """Nothing; but the object as it was, where the entry delivers a sentinel."""
    if entry.kind != "watch":
        return []
    meta = entry.data["object"]["metadata"]
    sentinel = (meta.get("annotations") or {}).get(SENTINEL_ANNOTATION)
    if history.sentinel_t(entry.data["resource"], sentinel or "") != entry.t:
        return []
    seen = history.versions(entry.data["resource"], meta.get("namespace", ""), meta["name"])
    before = copy.deepcopy(dict(next(old for old in reversed(seen) if old.t < entry.t).object))
    before["metadata"] |= {"annotations": meta["annotations"], "resourceVersion": meta["resourceVersion"]}
    return [replace(entry, data={**entry.data, "object": before})]


def _tells(entry: Entry, moment: Moment) -> bool:
    read_from = moments.resources(moment)
    if read_from:
        return entry.kind == "watch" and entry.data["resource"] in read_from
    return entry.kind in ("fault", "told", "machine", "component", "action", "observed")


def _renewed(history: History, node: str, t: float) -> History:
    """A recording in which the node renewed its Lease at `t` (s) as well, told at once."""
    lease = [seen for seen in history.versions("leases", LEASE_NAMESPACE, node) if seen.t < t][-1]
    clocks = (each.data for each in history.of_kind("clock") if each.data["node"] == node)
    ahead_s = next((float(clock["offset_s"]) for clock in clocks), 0.0)
    wall = t + float(history.begun["wall_offset_s"]) + ahead_s
    renewed = copy.deepcopy(dict(lease.object))
    renewed["spec"]["renewTime"] = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    data = {"resource": "leases", "type": "MODIFIED", "object": renewed}
    return History.of([*history.entries, Entry(t + _MOMENT_S, "watch", data)])


def _can_come(history: History, moment: Moment, t: float) -> bool:
    """Whether the object of a moment was there at `t` (s), in another state."""
    return not moments.unable(history, moment, Span.at(t))


def _blind(history: History, resource: str, since_t: float, until_t: float) -> History:
    gap = Entry(until_t, "gap", {"resource": resource, "since": since_t, "reason": "the connection broke"})
    return History.of([*history.entries, gap])


def _is_lease(node: str, at_t: float | None = None) -> Callable[[Entry], bool]:
    def is_lease(entry: Entry) -> bool:
        if entry.kind != "watch" or entry.data["resource"] != "leases" or at_t not in (None, entry.t):
            return False
        return bool(entry.data["object"]["metadata"]["name"] == node)

    return is_lease


def _fenced_anew(history: History) -> History:
    """The last fence holds what such a cluster would have listed, and what its watches would have counted."""
    fences = history.of_kind("fence")
    if not fences:
        return history
    last = fences[-1]
    listed = {
        name: {
            **told,
            "received": history.received(
                name, history.sentinel_t(name, last.data["sentinels"][name]) or last.t
            ),
            "objects": dict(history.folded(name, int(told["rv"]))),
        }
        for name, told in last.data["listed"].items()
    }
    fence = replace(last, data={**last.data, "listed": listed})
    return History.of(fence if entry is last else entry for entry in history.entries)


def _change(document: Json, path: list[str], change: Callable[[Json], Json]) -> None:
    for part in path[:-1]:
        document = document[part]
    document[path[-1]] = change(document[path[-1]])


def _another(value: Json) -> Json:
    return not value if isinstance(value, bool) else "7s" if isinstance(value, str) else value + 7
