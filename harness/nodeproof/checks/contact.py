"""Contact of a kubelet that a fault should have silenced, shown by renewals of its Lease."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeproof.checks.heartbeats import lease_renewals
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import LEASE_NAMESPACE, Configuration
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span, slack_s

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
