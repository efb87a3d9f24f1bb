"""Heartbeats of nodes (lease renewals, status updates), and of a kubelet that a fault should have silenced.

API writes are timed by the receipt of their watch event, leases by renewTime converted to the harness's
clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodeproof.checks.shapes import Occurrence
from nodeproof.model.clocks import clock_of, error_s, offset_s, written_t
from nodeproof.model.cluster import LEASE_NAMESPACE, Configuration, condition
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span, slack_s

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


_SILENCING = ("power-off", "reset", "freeze", "link-down")
"""Faults that always keep the kubelet of their node from the API server."""
_KUBELET = "kubelet.service"
_ENDS = ("healing", "healed", "unhealed", "closed")
"""Steps of a fault from which on a kubelet may reach the API server again."""


@dataclass(frozen=True)
class Silence:
    """A time (s) in which a fault should have kept a node's kubelet from the API server."""

    node: str
    fault: str
    span: Span


def contact(history: History, configuration: Configuration) -> str:
    """Return which kubelet renewed its Lease although a fault should have silenced it, or an empty string.

    A renewal that was under way when the fault took hold does not count: its renewTime is from before. Nor
    does one that another writer made in the kubelet's place.
    """
    for silence in silences(history):
        lease = _Lease.of(history, silence)
        renewals = lease_renewals(history, silence.node) if lease.during else ()
        for renewal in renewals:
            if not _is_during(renewal, silence, history, configuration):
                continue
            if not lease.is_foreign(lease.received_at(float(renewal.detail["received_t"]))):
                reason = f"{silence.node} renewed its Lease {_moment(renewal.t, silence)}: it was not cut off"
                return "; ".join(filter(None, (reason, foreign_write(history))))
    return ""


def foreign_write(history: History) -> str:
    """Return who else wrote the Lease of a silenced kubelet, and when, or an empty string."""
    for silence in silences(history):
        lease = _Lease.of(history, silence)
        for version in lease.during:
            if not version.listed and lease.is_foreign(version):
                moment = _moment(version.t, silence)
                return f"{lease.writer(version)}, not the kubelet, wrote the Lease of {silence.node} {moment}"
    return ""


def silences(history: History) -> Iterator[Silence]:
    """Yield for each node of each fault that should silence its kubelet from when to when."""
    steps: dict[str, list[Entry]] = {}
    for entry in history.of_kind("fault"):
        steps.setdefault(str(entry.data["id"]), []).append(entry)
    for fault, entries in steps.items():
        since_t = next((entry.t for entry in entries if entry.data["step"] == "injected"), None)
        if since_t is not None:
            ends = (entry.t for entry in entries if entry.data["step"] in _ENDS and entry.t >= since_t)
            span = Span(since_t, next(ends, math.inf))
            yield from (Silence(node, fault, span) for node in _silenced_nodes(entries[0]))


def _silenced_nodes(step: Entry) -> Sequence[str]:
    """Return the nodes whose kubelet the fault of a step should keep from the API server."""
    fault: Json = step.data["fault"]
    node, name = str(step.data["node"]), fault.get("fault")
    if name == "outage":
        return tuple(fault["nodes"])
    is_silent = (
        name in _SILENCING
        or (name == "partition" and fault.get("direction") != "api-to-node")
        or (name == "unit-down" and fault.get("unit") == _KUBELET)
    )
    return (node,) if is_silent else ()


def _is_during(renewal: Occurrence, silence: Silence, history: History, configuration: Configuration) -> bool:
    """Return whether a renewal was certainly sent and received while a fault lasted."""
    received_t, span = float(renewal.detail["received_t"]), silence.span
    if renewal.t <= span.since_t or received_t >= span.until_t:
        return False
    sent = Span(min(renewal.t, received_t), max(renewal.t, received_t))
    return renewal.t - slack_s(history, configuration, [Span.at(span.since_t), sent]) > span.since_t


def _moment(t: float, silence: Silence) -> str:
    return f"{t - silence.span.since_t:.2f} s after the injection of fault {silence.fault}"


@dataclass(frozen=True)
class _Lease:
    """The recorded versions of the Lease of a silenced node."""

    silence: Silence
    versions: Sequence[Version]

    @classmethod
    def of(cls, history: History, silence: Silence) -> _Lease:
        return cls(silence, history.versions("leases", LEASE_NAMESPACE, silence.node))

    @property
    def during(self) -> Sequence[Version]:
        """The versions that were received while the fault lasted."""
        span = self.silence.span
        return [version for version in self.versions if span.since_t < version.t < span.until_t]

    def received_at(self, t: float) -> Version:
        """Return the version that was received at a time (s); there must be one."""
        return next(version for version in self.versions if version.t == t)

    def is_foreign(self, version: Version) -> bool:
        """Return whether another than the kubelet wrote a version.

        The kubelet's field manager is the one that renewed the Lease before it was silenced. If the API does
        not say who wrote it, the holder decides.
        """
        before = [other for other in self.versions if other.t <= self.silence.span.since_t]
        kubelet = _renewer(before[-1].object) if before else ""
        manager = self._manager(version)
        if kubelet and manager:
            return manager != kubelet
        return _holder(version.object) not in ("", self.silence.node)

    def writer(self, version: Version) -> str:
        """Name who wrote a version: its field manager, and the holder that it names."""
        manager, holder = self._manager(version), _holder(version.object)
        return f"{manager or 'another client'} (holder {holder or 'none'})"

    def _manager(self, version: Version) -> str:
        """Return the field manager of the last write; empty if the API does not say."""
        number = self.versions.index(version)
        earlier = _fields(self.versions[number - 1].object) if number else ()
        present = _fields(version.object)
        changed = [entry for entry in present if entry not in earlier] or present
        return str(max(changed, key=lambda entry: str(entry.get("time")))["manager"]) if changed else ""


def _fields(lease: Json) -> Sequence[Json]:
    return lease["metadata"].get("managedFields") or ()


def _renewer(lease: Json) -> str:
    """Return the field manager that renewed a Lease; empty if the API does not say."""
    owners = (
        str(entry["manager"])
        for entry in _fields(lease)
        if "f:renewTime" in entry.get("fieldsV1", {}).get("f:spec", {})
    )
    return next(owners, "")


def _holder(lease: Json) -> str:
    return str(lease["spec"].get("holderIdentity") or "")
