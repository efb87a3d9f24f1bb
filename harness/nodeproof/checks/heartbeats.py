"""Heartbeats of nodes: lease renewals and status updates.

API writes are timed by the receipt of their watch event, leases by renewTime converted to the harness's
clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nodeproof.checks.shapes import Occurrence
from nodeproof.model.clocks import clock_of, error_s, offset_s, written_t
from nodeproof.model.cluster import LEASE_NAMESPACE, condition
from nodeproof.model.history import History, Version

_PROMPT_S = 0.2
"""Delay of a write (s) that the slack already covers, since it includes the latency of a watch."""
_WHOLE_SECONDS_S = 1.0
"""Largest error of a lastHeartbeatTime (s), which is truncated to seconds."""


def last_before(history: History, node: str, before_t: float) -> Occurrence | None:
    """Return the node's last heartbeat that was in the API at a time (s).

    None if there is none, or if it was sent before the recording.
    """
    return next(last_before_each(history, node, [before_t]))


def last_before_each(history: History, node: str, times: Sequence[float]) -> Iterator[Occurrence | None]:
    """Yield for each time (s) the node's last heartbeat that was in the API, as `last_before` returns it."""
    beats = list(heartbeats(history, node)) if times else []
    for before_t in times:
        arrived = (beat for beat in beats if _arrival_t(beat) <= before_t)
        yield _unless_unseen(history, node, max(arrived, key=lambda beat: beat.t, default=None))


def first_long_silence(history: History, node: str, longer_than_s: float) -> Occurrence | None:
    """Return the heartbeat before the first silence longer than `longer_than_s`, else the last one.

    None if there is none, or if it was sent before the recording.
    """
    beats = sorted(heartbeats(history, node), key=_arrival_t)
    for beat, following in pairwise(beats):
        if _arrival_t(following) - _arrival_t(beat) > longer_than_s:
            return _unless_unseen(history, node, beat)
    return _unless_unseen(history, node, beats[-1] if beats else None)


def _unless_unseen(history: History, node: str, beat: Occurrence | None) -> Occurrence | None:
    """Return a heartbeat, or None if the first recorded status may be a later one.

    The time of that write is unknown. A kubelet that was cut off reports its status seconds before it
    renews its Lease, whose renewTime is from before the cut until then.
    """
    first = next(iter(history.versions("nodes", "", node)), None)
    ready = condition(first.object, "Ready") if first and first.listed else None
    status_heartbeat = ready.get("lastHeartbeatTime") if ready and ready["status"] != "Unknown" else None
    if beat is None or status_heartbeat is None or not beat.detail.get("listed"):
        return beat
    ahead_s = offset_s(history, node, history.began_t) or 0.0
    status_t = written_t(history, str(status_heartbeat), history.began_t) - ahead_s + _WHOLE_SECONDS_S
    return None if status_t > beat.t else beat


def _arrival_t(beat: Occurrence) -> float:
    """Return when a heartbeat was in the API (s); a delayed one carries an old renewTime."""
    return max(beat.t, float(beat.detail["received_t"]))


def heartbeats(history: History, node: str) -> Iterator[Occurrence]:
    """Yield every heartbeat of a node: lease renewals by renewTime, changed Ready heartbeats by receipt."""
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
    """Yield every renewal of a node's Lease, at its renewTime on the harness's clock.

    The occurrence's `error_s` is the largest error of that time, `under_way_s` the least time until the
    renewal was visible.
    """
    renewals = list(_renewals(history, node))
    # Computed once for each clock that the node had: there may be tens of thousands of renewals.
    clock_offsets: dict[float | None, tuple[float | None, float]] = {}
    for version, renewed_t in renewals:
        clock = clock_of(history, node, version.t)
        if clock not in clock_offsets:
            clock_offsets[clock] = _clock(history, node, version, renewals)
        ahead_s, max_error_s = clock_offsets[clock]
        if ahead_s is not None:
            delay_s = version.t - (renewed_t - ahead_s) - max_error_s
            detail = {
                "heartbeat": "lease",
                "received_t": version.t,
                "error_s": max_error_s,
                "listed": version.listed,
                "under_way_s": 0.0 if version.listed or delay_s < _PROMPT_S else delay_s,
            }
            yield Occurrence(renewed_t - ahead_s, detail)


def watched_renewals(history: History, node: str) -> Sequence[Occurrence]:
    """Return the renewals that the watch saw.

    A renewal from before the recording belongs to earlier events, such as the healing of another fault.
    """
    return [beat for beat in lease_renewals(history, node) if not beat.detail["listed"]]


def _renewals(history: History, node: str) -> Iterator[tuple[Version, float]]:
    """Yield the versions of a node's Lease that a renewal wrote, each with its renewTime (s)."""
    last = ""
    for version in history.versions("leases", LEASE_NAMESPACE, node):
        renew_time = str(version.object["spec"].get("renewTime") or "")
        if renew_time and renew_time != last:
            yield version, written_t(history, renew_time, version.t)
        last = renew_time


def _clock(
    history: History, node: str, version: Version, renewals: Sequence[tuple[Version, float]]
) -> tuple[float | None, float]:
    """Return how far the node's clock was ahead, and the largest error of that (s)."""
    ahead_s = offset_s(history, node, version.t)
    if ahead_s is not None:
        return ahead_s, error_s(history) or 0.0
    return _promptest_s(history, node, version, renewals), _latency_s(history)


def _promptest_s(
    history: History, node: str, version: Version, renewals: Sequence[tuple[Version, float]]
) -> float | None:
    """Return how far a clock that was not measured was ahead (s), except for a watch's latency.

    No renewal is received before it is written.
    """
    clock = clock_of(history, node, version.t)
    return max(
        (
            renewed_t - renewal.t
            for renewal, renewed_t in renewals
            if not renewal.listed and clock_of(history, node, renewal.t) == clock
        ),
        default=None,
    )


def _latency_s(history: History) -> float:
    """Return the worst latency of a watch in the recording (s)."""
    latencies = (entry.data.get("latency_s") or {} for entry in history.of_kind("sentinel"))
    return max((latency_s for by_resource in latencies for latency_s in by_resource.values()), default=0.0)
