"""The content of a recording: entries on the harness's monotonic clock, and queries on them.

Entry kinds and their data (one JSON object a line in `history.jsonl`, `t` in seconds of CLOCK_MONOTONIC):

| kind | data |
|---|---|
| begun | wall_offset_s (wall minus monotonic clock), nodes, sentinel_node |
| wall | offset_s (wall minus monotonic clock after a step of the host's wall clock), since (s: time of the
previous comparison) |
| clock | node, offset_s (its clock minus the harness's), error_s (half the duration of the
request, which ended at `t`) |
| listed | resource, items (the objects of the first LIST, and of each LIST after a gap), rv |
| watch | resource, type (ADDED, MODIFIED, DELETED), object |
| gap | resource, since (s), reason; `t` is when the watch was back, after a LIST if one was needed |
| sentinel | value (of the annotation), sent_t (s) and latency_s per resource whose watch did not break; a
watch that had not delivered it by `t` has the age of the sentinel as its latency |
| fence | sentinels {resource: value}, listed {resource: {rv, received (events), objects {uid: rv}}} |
| fault | id, fault (its data), node, step (planned, armed, injecting, injected, unproven, unanswered,
healing, healed, unhealed or closed) |
| deadman | id, node |
| machine | node, step (booted, powered-off, clock-set, kubelet-restarted and others) |
| component | name, node, status, expected |
| observed | what, subject, value, asked_t (s); an id if it is a single observation; error, beside a null
value, if the observation failed; for a counter process_s (start of the counting process, s since the
epoch) |
| action | id, text, step (begun, ended, failed) |
| told | by (a pod, a node's unit, a log), what: a message written there at `t` |
| heard | by, error_s (largest error of the message times), unsure (times in which messages may be lost:
since_t, until_t (s), why; in earlier versions only why), and node and boot_id if the source is on a node; the
source is complete up to `t` |
| broken | error that ended a thread; resource, or what and subject, if it observed only these; by: lab if the
thread was not the harness's |
| stall | late_s (longest delay with which the harness was woken since the previous entry; by: another process
that was delayed; waited_s: total CPU wait of the processes that a change passes through) |
| ended | wall_offset_s |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nodeproof.model.fold import SENTINEL_ANNOTATION, Entry, Fold, Late, Version, parse_time, received

__all__ = ["PROBED", "SENTINEL_ANNOTATION", "Entry", "Fence", "History", "Version", "fence", "parse_time"]
Json = Any
PROBED = ("injected", "unproven", "unanswered")
"""Results of a fault's probe: effect confirmed, no effect, no answer."""


@dataclass(frozen=True)
class History:
    """The entries of one scenario's recording, sorted by time."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> History:
        """Sort `entries` by time, keeping the order of equal times."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.t)))

    @classmethod
    def parse(cls, lines: Iterable[str]) -> History:
        """Read `history.jsonl`.

        Raises:
            ValueError: A line is not an entry.
        """
        return cls.of(Entry.from_json(line) for line in lines if line.strip())

    @classmethod
    def so_far(cls, fold: Fold) -> History:
        """Return the present content of a fold; it is invalid once the fold has grown."""
        history = cls(tuple(fold.entries))
        history.__dict__["_fold"] = fold
        return history

    @cached_property
    def _fold(self) -> Fold:
        return Fold.of(self.entries)

    def of_kind(self, kind: str) -> Sequence[Entry]:
        """Return all entries of one kind, in time order."""
        return self._fold.by_kind.get(kind, ())

    @property
    def began_t(self) -> float:
        """Start of the recording (s); 0 for an empty one."""
        return self.entries[0].t if self.entries else 0.0

    @property
    def ended_t(self) -> float:
        """End of the recording (s), or the time of the last entry if it is incomplete."""
        ended = self.of_kind("ended")
        if ended:
            return ended[-1].t
        return self.entries[-1].t if self.entries else 0.0

    @property
    def begun(self) -> Mapping[str, Json]:
        """Facts at the start of the recording: wall_offset_s, nodes, sentinel_node."""
        begun = self.of_kind("begun")
        return begun[0].data if begun else {}

    @cached_property
    def wall_offsets(self) -> Sequence[tuple[float, float]]:
        """The host's wall clock minus its monotonic one (s), each with its earliest start (s)."""
        began = float(self.begun.get("wall_offset_s", 0.0))
        steps = (
            (float(entry.data["since"]), float(entry.data["offset_s"])) for entry in self.of_kind("wall")
        )
        return [(float("-inf"), began), *steps]

    def wall_offset_s(self, t: float) -> float:
        """Return the host's wall clock minus its monotonic one (s) at a time (s, monotonic)."""
        return next(offset_s for since_t, offset_s in reversed(self.wall_offsets) if since_t <= t)

    def from_wall(self, timestamp: str, seen_t: float = float("inf")) -> float:
        """Convert an API timestamp (RFC 3339) that was seen at `seen_t` to the monotonic clock (s)."""
        return self.from_epoch(parse_time(timestamp), seen_t)

    def from_epoch(self, wall_s: float, seen_t: float = float("inf")) -> float:
        """Convert a time of the host's wall clock (s since the epoch) to the monotonic clock (s).

        A wall clock that was set back shows a time twice. The later one is returned unless it is after
        `seen_t`; the slack near such a step allows for the other one.
        """
        for since_t, offset_s in reversed(self.wall_offsets):
            if since_t <= wall_s - offset_s <= seen_t:
                return wall_s - offset_s
        return wall_s - self.wall_offset_s(seen_t)

    @property
    def late(self) -> Sequence[Late]:
        """Late events of watches without a gap; after a gap, a watch delivers missed events late."""
        return [
            late for late in self._fold.late if self.gap(late.resource, late.t - late.late_s, late.t) is None
        ]

    def versions(self, resource: str, namespace: str, name: str) -> tuple[Version, ...]:
        """Return every state of one object, in the order of receipt."""
        return tuple(self._fold.versions.get((resource, namespace, name), ()))

    def all_versions(self, resource: str) -> Iterator[Version]:
        """Yield every received state of every object of one resource, in time order."""
        for entry in self._fold.by_resource.get(resource, ()):
            yield from received(entry)

    def folded(self, resource: str, up_to_rv: int) -> Mapping[str, str]:
        """Return the watch state as {uid: resourceVersion}, without changes after `up_to_rv`.

        A deletion has a resourceVersion of its own, so one after `up_to_rv` is undone as well. A LIST after a
        gap restarts the state: objects that are not on it are gone.
        """
        state: dict[str, str] = {}
        for entry in self._fold.by_resource.get(resource, ()):
            if entry.kind == "listed" and int(entry.data["rv"]) <= up_to_rv:
                state.clear()
            for version in received(entry):
                meta = version.object["metadata"]
                if int(meta["resourceVersion"]) > up_to_rv:
                    continue
                if version.deleted:
                    state.pop(meta["uid"], None)
                else:
                    state[meta["uid"]] = meta["resourceVersion"]
        return state

    def received(self, resource: str, until_t: float) -> int:
        """Return the number of watch events of a resource up to `until_t` (s)."""
        events = (entry for entry in self._fold.by_resource.get(resource, ()) if entry.kind == "watch")
        return sum(1 for entry in events if entry.t <= until_t)

    def gap(self, resource: str, since_t: float, until_t: float) -> Entry | None:
        """Return the first gap in a watch that overlaps [since_t, until_t].

        A gap lasts until the watch delivers a sentinel that was sent after it was back: a resumed watch first
        delivers the events of the gap, in one burst and without their times.
        """
        for entry in self.of_kind("gap"):
            if entry.data["resource"] != resource or entry.data["since"] > until_t:
                continue
            if self._caught_up_t(resource, entry.t) >= since_t:
                return entry
        return None

    def _caught_up_t(self, resource: str, since_t: float) -> float:
        """Return when a watch delivered the first sentinel that was sent at or after `since_t` (s)."""
        receipts = (received_t for sent_t, received_t in self._sentinels(resource) if sent_t >= since_t)
        return next(receipts, float("inf"))

    def _sentinels(self, resource: str) -> Iterator[tuple[float, float]]:
        """Yield when each sentinel was sent and delivered (s), if the watch did not break in between."""
        delivered = self._fold.sentinels.get(resource, {})
        for entry in self.of_kind("sentinel"):
            value, latency = entry.data["value"], entry.data.get("latency_s") or {}
            if resource in latency and value in delivered:
                # Recordings of earlier versions only have sentinels that all watches delivered.
                sent = entry.data.get("sent_t") or {resource: delivered[value] - latency[resource]}
                yield float(sent[resource]), delivered[value]

    def sentinel_t(self, resource: str, value: str) -> float | None:
        """Return when a watch delivered a sentinel (s)."""
        return self._fold.sentinels.get(resource, {}).get(value)


@dataclass(frozen=True)
class Fence:
    """Evidence that the watches missed nothing up to `t`, or the reason for the doubt."""

    passed: bool
    t: float
    reason: str


def fence(history: History, resources: Iterable[str] = ()) -> Fence:
    """Evaluate the last fence of a recording.

    It passes if the watch of every recorded resource, and of all `resources`, delivered its last sentinel,
    and the quorum LIST taken afterwards equals the folded watch state by (uid, resourceVersion) without later
    changes. It is valid up to `t`, the first receipt of a last sentinel: an object that is created and
    removed later is on no LIST. The number of received events reveals a stored history that lost an event.
    """
    fences = history.of_kind("fence")
    if not fences:
        return Fence(False, history.ended_t, "the recording has no fence")
    last = fences[-1]
    sentinels, listed = last.data["sentinels"], last.data["listed"]
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    needed = sorted({*recorded, *resources, *sentinels, *listed})
    if not needed:
        return Fence(False, last.t, "the fence has no watch")
    sentinel_times = []
    for resource in needed:
        if resource not in sentinels or resource not in listed:
            return Fence(False, last.t, f"the fence does not include {resource}")
        sentinel_t = history.sentinel_t(resource, sentinels[resource])
        if sentinel_t is None:
            reason = f"the watch of {resource} never delivered sentinel {sentinels[resource]}"
            return Fence(False, last.t, reason)
        sentinel_times.append(sentinel_t)
        folded = history.folded(resource, int(listed[resource]["rv"]))
        received = history.received(resource, sentinel_t)
        if listed[resource].get("received", received) != received:
            reason = (
                f"{listed[resource]['received']} events of {resource} were received, {received} are stored"
            )
            return Fence(False, last.t, reason)
        different = set(folded.items()) ^ set(listed[resource]["objects"].items())
        if different:
            reason = f"{len(different)} states of {resource} differ between LIST and watch"
            return Fence(False, last.t, reason)
    return Fence(True, min(sentinel_times), "")
