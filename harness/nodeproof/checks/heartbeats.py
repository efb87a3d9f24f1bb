"""Heartbeats of nodes: both kinds of them, the last before a moment, the first long silence.

API writes are timed by the watch's receipt, leases by renewTime put on the harness's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nodeproof.checks.occurrence import Occurrence
from nodeproof.model.clocks import clock_of, error_s, offset_s, written_t
from nodeproof.model.cluster import LEASE_NAMESPACE, condition
from nodeproof.model.history import History, Version

_PROMPT_S = 0.2
"""A write that takes no longer is the slack's: it holds the latency of a watch."""
_WHOLE_SECONDS_S = 1.0
"""How much later than it says a lastHeartbeatTime may be: it is cut to seconds."""


def last_before(history: History, node: str, before_t: float) -> Occurrence | None:
    """The node's last heartbeat that was in the API by a time (s); None also where that came before the
    recording.
    """
    beats = [beat for beat in heartbeats(history, node) if _arrived(beat) <= before_t]
    return _unless_unseen(history, node, max(beats, key=lambda beat: beat.t, default=None))


def first_long_silence(history: History, node: str, longer_than_s: float) -> Occurrence | None:
    """The heartbeat that begins the first silence of more than so many seconds, else the last one; None also
    where that came before the recording.
    """
    beats = sorted(heartbeats(history, node), key=_arrived)
    for beat, following in pairwise(beats):
        if _arrived(following) - _arrived(beat) > longer_than_s:
            return _unless_unseen(history, node, beat)
    return _unless_unseen(history, node, beats[-1] if beats else None)


def _unless_unseen(history: History, node: str, beat: Occurrence | None) -> Occurrence | None:
    """A heartbeat, unless the status that the recording began with may be a later one: it was in the API some
    time before, and nobody saw when. A kubelet that was cut off reports its status seconds before it renews
    its Lease, whose renewTime is from before the cut until then.
    """
    first = next(iter(history.versions("nodes", "", node)), None)
    ready = condition(first.object, "Ready") if first and first.listed else None
    told = ready.get("lastHeartbeatTime") if ready and ready["status"] != "Unknown" else None
    if beat is None or told is None or not beat.detail.get("listed"):
        return beat
    ahead_s = offset_s(history, node, history.began_t) or 0.0
    told_t = written_t(history, str(told), history.began_t) - ahead_s + _WHOLE_SECONDS_S
    return None if told_t > beat.t else beat


def _arrived(beat: Occurrence) -> float:
    """When a heartbeat was in the API (s): one that a cut held up carries an old renewTime."""
    return max(beat.t, float(beat.detail["received_t"]))


def heartbeats(history: History, node: str) -> Iterator[Occurrence]:
    """Every heartbeat of a node: lease renewals by renewTime, changed Ready heartbeats by receipt."""
    yield from lease_renewals(history, node)
    last: str | None = None
    for number, version in enumerate(history.versions("nodes", "", node)):
        ready = condition(version.object, "Ready")
        beat = str(ready.get("lastHeartbeatTime")) if ready and ready["status"] != "Unknown" else last
        was_there = number == 0 and version.listed
        if beat is not None and beat != last and not was_there:
            yield Occurrence(version.t, {"heartbeat": "status", "received_t": version.t})
        last = beat


def lease_renewals(history: History, node: str) -> Iterator[Occurrence]:
    """Every renewal of a node's Lease, at its renewTime on the harness's clock; `error_s` is how wrong that
    may be, `under_way_s` how long it took at least until somebody could see it.
    """
    renewed = list(_renewed(history, node))
    # One answer for each clock that the node had: there may be tens of thousands of renewals.
    told: dict[float | None, tuple[float | None, float]] = {}
    for version, told_t in renewed:
        clock = clock_of(history, node, version.t)
        if clock not in told:
            told[clock] = _clock(history, node, version, renewed)
        ahead_s, wrong_s = told[clock]
        if ahead_s is not None:
            took_s = version.t - (told_t - ahead_s) - wrong_s
            data = {
                "heartbeat": "lease",
                "received_t": version.t,
                "error_s": wrong_s,
                "listed": version.listed,
                "under_way_s": 0.0 if version.listed or took_s < _PROMPT_S else took_s,
            }
            yield Occurrence(told_t - ahead_s, data)


def seen_renewals(history: History, node: str) -> Sequence[Occurrence]:
    """Those that the watch saw: one from before the recording belongs to what came before, such as the
    healing of another fault.
    """
    return [beat for beat in lease_renewals(history, node) if not beat.detail["listed"]]


def _renewed(history: History, node: str) -> Iterator[tuple[Version, float]]:
    """The versions of a node's Lease that a renewal made, each with its renewTime by the node's clock."""
    last = ""
    for version in history.versions("leases", LEASE_NAMESPACE, node):
        told = str(version.object["spec"].get("renewTime") or "")
        if told and told != last:
            yield version, written_t(history, told, version.t)
        last = told


def _clock(
    history: History, node: str, version: Version, renewed: Sequence[tuple[Version, float]]
) -> tuple[float | None, float]:
    """What the clock that a node had was ahead by, and how wrong that may be (s)."""
    ahead_s = offset_s(history, node, version.t)
    if ahead_s is not None:
        return ahead_s, error_s(history) or 0.0
    return _promptest_s(history, node, version, renewed), _latency_s(history)


def _promptest_s(
    history: History, node: str, version: Version, renewed: Sequence[tuple[Version, float]]
) -> float | None:
    """What a clock that nobody asked was ahead by, but for a watch's latency: none is read before it is
    written.
    """
    clock = clock_of(history, node, version.t)
    return max(
        (
            told_t - seen.t
            for seen, told_t in renewed
            if not seen.listed and clock_of(history, node, seen.t) == clock
        ),
        default=None,
    )


def _latency_s(history: History) -> float:
    """The worst latency of a watch in the recording (s)."""
    told = (entry.data.get("latency_s") or {} for entry in history.of_kind("sentinel"))
    return max((took for latencies in told for took in latencies.values()), default=0.0)
