"""What a recording holds: entries on the harness's monotonic clock, and questions about them.

Entry kinds and their data (one JSON object a line in `history.jsonl`, `t` in seconds of CLOCK_MONOTONIC):

| kind | data |
|---|---|
| begun | wall_offset_s (wall minus monotonic clock), nodes, sentinel_node |
| wall | offset_s (wall minus monotonic clock, once the host's wall clock was set), since (s: when they were
compared before) |
| clock | node, offset_s (its clock minus the harness's), error_s (half of what asking took until `t`) |
| listed | resource, items (the objects of the first LIST, and of each LIST after a gap), rv |
| watch | resource, type (ADDED, MODIFIED, DELETED), object |
| gap | resource, since (s), reason; `t` is when the watch was back, after a LIST if one was needed |
| sentinel | value (the annotation that was sent), sent_t (s) and latency_s per resource whose watch did not
break; one that had not given it back by `t` is as late as the sentinel was old |
| fence | sentinels {resource: value}, listed {resource: {rv, received (events), objects {uid: rv}}} |
| fault | id, fault (its data), node, step (planned, armed, injecting, injected, unproven, unanswered,
healing, healed, unhealed or closed) |
| deadman | id, node |
| machine | node, step (booted, powered-off, clock-set, kubelet-restarted and others) |
| component | name, node, status, expected |
| observed | what, subject, value, asked_t (s), and an id where it was looked at once; error, beside a null
 value, where a look had no answer; of a count process_s (when the process was started that counts, s since
 the epoch) |
| action | id, text, step (begun, ended, failed) |
| told | by (a pod, a node's unit, a log), what: written down there at `t` |
| heard | by, error_s (how wrong the times of what it told may be), unsure (times in which something may be
lost: since_t, until_t (s), why; of earlier versions why alone), and node and boot_id where it was told on a
node; it vouches up to `t` |
| broken | error: a thread ended by it and observes no more; resource, or what and subject, where it observed
these alone; by: lab where it was none of the harness |
| stall | late_s (how much later than asked the harness was woken, at the worst since the entry before; by:
who else was; waited_s: how long what a change goes through waited for processors, one after another) |
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
"""Steps of a fault that a probe decides: it saw the harm, it saw none, it was not answered."""


@dataclass(frozen=True)
class History:
    """Everything that was recorded in one scenario, sorted by time."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> History:
        """Sort `entries` by time, keeping the order of equal times."""
        return cls(tuple(sorted(entries, key=lambda entry: entry.t)))

    @classmethod
    def parse(cls, lines: Iterable[str]) -> History:
        """Read `history.jsonl`. Raises ValueError on a line that is not an entry."""
        return cls.of(Entry.from_json(line) for line in lines if line.strip())

    @classmethod
    def so_far(cls, fold: Fold) -> History:
        """What a fold holds now; it is of no use any more once the fold has grown."""
        history = cls(tuple(fold.entries))
        history.__dict__["_fold"] = fold
        return history

    @cached_property
    def _fold(self) -> Fold:
        return Fold.of(self.entries)

    def of_kind(self, kind: str) -> Sequence[Entry]:
        """All entries of one kind, in time order."""
        return self._fold.by_kind.get(kind, ())

    @property
    def began_t(self) -> float:
        """When the recording began (s); 0 for an empty one."""
        return self.entries[0].t if self.entries else 0.0

    @property
    def ended_t(self) -> float:
        """When the recording ended (s); the time of the last entry when it was cut short."""
        ended = self.of_kind("ended")
        if ended:
            return ended[-1].t
        return self.entries[-1].t if self.entries else 0.0

    @property
    def begun(self) -> Mapping[str, Json]:
        """The recording's first facts: wall_offset_s, nodes, sentinel_node."""
        begun = self.of_kind("begun")
        return begun[0].data if begun else {}

    @cached_property
    def wall_offsets(self) -> Sequence[tuple[float, float]]:
        """The host's wall clock minus its monotonic one (s), each with since when (s) it may be so."""
        began = float(self.begun.get("wall_offset_s", 0.0))
        steps = (
            (float(entry.data["since"]), float(entry.data["offset_s"])) for entry in self.of_kind("wall")
        )
        return [(float("-inf"), began), *steps]

    def wall_offset_s(self, t: float) -> float:
        """The host's wall clock minus its monotonic one (s) at a time (s, monotonic)."""
        return next(offset_s for since_t, offset_s in reversed(self.wall_offsets) if since_t <= t)

    def from_wall(self, timestamp: str, seen_t: float = float("inf")) -> float:
        """Put an API timestamp (RFC 3339) that was seen at `seen_t` on the monotonic clock (s)."""
        return self.from_epoch(parse_time(timestamp), seen_t)

    def from_epoch(self, wall_s: float, seen_t: float = float("inf")) -> float:
        """Put a time of the host's wall clock (s since the epoch) on the monotonic clock (s).

        A wall clock that was set back tells a time twice: the later one is meant, unless nobody can have seen
        that yet. The slack of what is near such a step allows for the other.
        """
        for since_t, offset_s in reversed(self.wall_offsets):
            if since_t <= wall_s - offset_s <= seen_t:
                return wall_s - offset_s
        return wall_s - self.wall_offset_s(seen_t)

    @property
    def late(self) -> Sequence[Late]:
        """What watches delivered late that were not blind: one that is back delivers what came meanwhile."""
        return [
            late for late in self._fold.late if self.gap(late.resource, late.t - late.late_s, late.t) is None
        ]

    def versions(self, resource: str, namespace: str, name: str) -> tuple[Version, ...]:
        """Every state of one object in the order of receipt."""
        return tuple(self._fold.versions.get((resource, namespace, name), ()))

    def all_versions(self, resource: str) -> Iterator[Version]:
        """Every received state of every object of one resource, in time order."""
        for entry in self._fold.by_resource.get(resource, ()):
            yield from received(entry)

    def folded(self, resource: str, up_to_rv: int) -> Mapping[str, str]:
        """The watch state as {uid: resourceVersion}, without what came after `up_to_rv`.

        A deletion carries the resourceVersion of the deletion, so that one after `up_to_rv` is undone as
        well. A LIST after a gap begins the state anew: what is not on it is gone.
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
        """How many watch events of a resource came up to `until_t` (s)."""
        events = (entry for entry in self._fold.by_resource.get(resource, ()) if entry.kind == "watch")
        return sum(1 for entry in events if entry.t <= until_t)

    def gap(self, resource: str, since_t: float, until_t: float) -> Entry | None:
        """The first gap in a watch that overlaps [since_t, until_t].

        It lasts until a sentinel comes back that was sent once the watch was back: a watch that goes on from
        its resourceVersion delivers first, in one burst, what happened at unknown times in the gap.
        """
        for entry in self.of_kind("gap"):
            if entry.data["resource"] != resource or entry.data["since"] > until_t:
                continue
            if self._caught_up_t(resource, entry.t) >= since_t:
                return entry
        return None

    def _caught_up_t(self, resource: str, since_t: float) -> float:
        """When a watch delivered the first sentinel that was sent at or after `since_t` (s)."""
        back = (received_t for sent_t, received_t in self._sentinels(resource) if sent_t >= since_t)
        return next(back, float("inf"))

    def _sentinels(self, resource: str) -> Iterator[tuple[float, float]]:
        """When the sentinels of a watch that did not break meanwhile were sent and delivered (s)."""
        delivered = self._fold.sentinels.get(resource, {})
        for entry in self.of_kind("sentinel"):
            value, latency = entry.data["value"], entry.data.get("latency_s") or {}
            if resource in latency and value in delivered:
                # Recordings of earlier versions hold those only that all watches gave back.
                sent = entry.data.get("sent_t") or {resource: delivered[value] - latency[resource]}
                yield float(sent[resource]), delivered[value]

    def sentinel_t(self, resource: str, value: str) -> float | None:
        """When a watch delivered a sentinel (s)."""
        return self._fold.sentinels.get(resource, {}).get(value)


@dataclass(frozen=True)
class Fence:
    """Whether the watches are known to have missed nothing up to `t`, and why not."""

    passed: bool
    t: float
    reason: str


def fence(history: History, resources: Iterable[str] = ()) -> Fence:
    """Judge the last fence of a recording from its evidence.

    It passes when the watch of every recorded resource, and of all `resources`, delivered its last sentinel,
    and the quorum LIST taken afterwards equals the folded watch state by (uid, resourceVersion), what came
    later undone. It vouches up to `t`, the first receipt of a last sentinel: what is made and removed after
    it is on no LIST. The count of received events tells when a stored history lost one that a later state of
    its object covers.
    """
    fences = history.of_kind("fence")
    if not fences:
        return Fence(False, history.ended_t, "the recording holds no fence")
    last = fences[-1]
    sentinels, listed = last.data["sentinels"], last.data["listed"]
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    needed = sorted({*recorded, *resources, *sentinels, *listed})
    if not needed:
        return Fence(False, last.t, "the fence holds no watch")
    seen = []
    for resource in needed:
        if resource not in sentinels or resource not in listed:
            return Fence(False, last.t, f"the fence does not hold {resource}")
        sentinel_t = history.sentinel_t(resource, sentinels[resource])
        if sentinel_t is None:
            reason = f"the watch of {resource} never delivered sentinel {sentinels[resource]}"
            return Fence(False, last.t, reason)
        seen.append(sentinel_t)
        folded = history.folded(resource, int(listed[resource]["rv"]))
        received = history.received(resource, sentinel_t)
        if listed[resource].get("received", received) != received:
            said = f"{listed[resource]['received']} events of {resource} were received, {received} are stored"
            return Fence(False, last.t, said)
        different = set(folded.items()) ^ set(listed[resource]["objects"].items())
        if different:
            reason = f"{len(different)} states of {resource} differ between LIST and watch"
            return Fence(False, last.t, reason)
    return Fence(True, min(seen), "")
