"""The content of a recording: entries on the harness's monotonic clock, and queries on them.

Entry kinds and their data (one JSON object a line in `history.jsonl`, `t` in seconds of CLOCK_MONOTONIC):

| kind | data |
|---|---|
| begun | wall_offset_s (wall minus monotonic clock), nodes, sentinel_node |
| wall | offset_s (wall minus monotonic clock after a step of the host's wall clock), since (s: time of the
previous comparison) |
| clock | node, offset_s (its clock minus the harness's), error_s (half the duration of the
request, which ended at `t`) |
| listed | resource, items (the objects of the first LIST, and of each LIST after a gap; of events none), rv |
| watch | resource, type (ADDED, MODIFIED, DELETED; BOOKMARK in a recording that writes nothing), object |
| gap | resource, since (s), reason; `t` is when the watch was back, after a LIST if one was needed |
| sentinel | value (of the annotation), sent_t (s) and latency_s per resource whose watch did not break; a
watch that had not delivered it by `t` has the age of the sentinel as its latency |
| fence | sentinels {resource: value}, listed {resource: {rv, received (events), objects {uid: rv}}}; no
sentinels in a recording that writes nothing |
| fault | id, fault (its data), node, step (planned, armed, injecting, injected, unproven, unanswered,
aborted, healing, healed, unhealed or closed) |
| deadman | id, node |
| machine | node, step (booted, powered-off, clock-set, kubelet-restarted and others) |
| component | name, node, status, expected |
| observed | what, subject, value, asked_t (s); an id if it is a single observation, else period_s; error,
beside a null value, if the observation failed; for a counter process_s (start of the counting process, s
since the epoch) |
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

import json
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar, TypeVarTuple

from nodeproof.model import redact
from nodeproof.model.pattern import Json

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

SENTINEL_ANNOTATION = "nodeproof.dev/sentinel"
UNLISTED = "events"
"""The resource whose earlier objects are not recorded: a cluster keeps the events of an hour, and a watch
that opens after a long LIST delivers its first events late.
"""
Key = tuple[str, str, str]
"""A resource, a namespace and a name."""
_OFFSETS = {"begun": "wall_offset_s", "wall": "offset_s"}
"""Fields of the entries that hold the host's wall clock minus its monotonic one."""
LATE_S = 0.2
"""Longest normal delay (s) between a write and its receipt."""
_RESOLUTION_S = 1.0
"""Resolution of write times in the API (s)."""


@dataclass(frozen=True)
class Entry:
    """An observation or action at `t` (s, monotonic)."""

    t: float
    kind: str
    data: Mapping[str, Json]

    def to_json(self) -> str:
        """Return one line of `history.jsonl`."""
        return json.dumps({"t": round(self.t, 6), "kind": self.kind, **self.data}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Entry:
        """Read one line of `history.jsonl`.

        Raises:
            ValueError: The line is not an entry.
        """
        data = json.loads(line)
        if not isinstance(data, dict) or not {"t", "kind"} <= data.keys():
            raise ValueError(f"not an entry of a history: {line[:80]!r}")
        return cls(float(data.pop("t")), str(data.pop("kind")), data)


def clean(entry: Entry) -> tuple[Entry, str]:
    """Return an entry without secrets, and its line: it is judged in the form in which it is stored."""
    line = entry.to_json()
    if not redact.is_suspect(line):
        return entry, line
    cleaned = Entry(entry.t, entry.kind, redact.value(entry.data))
    return cleaned, cleaned.to_json()


@dataclass(frozen=True)
class Version:
    """A state of one object, and the time of its receipt; after a deletion, `object` is the last state.

    With `listed`, the state came from a LIST: it held at `t` and may be much older.
    """

    t: float
    deleted: bool
    object: Mapping[str, Json]
    listed: bool = False


@dataclass(frozen=True)
class Late:
    """A write that a watch delivered at `t` (s, monotonic), at least `least_s` and at most `late_s` later."""

    t: float
    resource: str
    late_s: float
    least_s: float


def parse_time(timestamp: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch.

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


@dataclass
class Fold:
    """Entries in time order, indexed by kind and resource, and the state derived from them.

    A fold grows: all its users see new entries. Entries of one resource arrive in order.
    """

    entries: list[Entry] = field(default_factory=list)
    by_kind: dict[str, list[Entry]] = field(default_factory=dict)
    by_resource: dict[str, list[Entry]] = field(default_factory=dict)
    versions: dict[Key, list[Version]] = field(default_factory=dict)
    sentinels: dict[str, dict[str, float]] = field(default_factory=dict)
    """First delivery (s) of each sentinel value by each watch; a value on a LIST does not prove a watch."""
    late: list[Late] = field(default_factory=list)
    """Writes received more than `LATE_S` after their time in the API, or after a newer write."""
    _newest: list[tuple[float, int]] = field(default_factory=list)
    """Receipt (s) and revision of each write that was newer than all received before."""
    _written: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Last write times in the states of each object, by its uid."""
    _wall_offset_s: float = 0.0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Fold:
        """Return a fold of these entries."""
        fold = cls()
        for entry in entries:
            fold.add(entry)
        return fold

    def add(self, entry: Entry) -> None:
        """Add one entry."""
        _put(self.entries, entry)
        _put(self.by_kind.setdefault(entry.kind, []), entry)
        self._wall_offset_s = float(entry.data.get(_OFFSETS.get(entry.kind, ""), self._wall_offset_s))
        if "resource" not in entry.data:
            return
        _put(self.by_resource.setdefault(str(entry.data["resource"]), []), entry)
        self._take(entry, str(entry.data["resource"]))

    def _take(self, entry: Entry, resource: str) -> None:
        listed = set()
        for version in received(entry):
            meta = version.object["metadata"]
            key = (resource, meta.get("namespace", ""), meta["name"])
            self.versions.setdefault(key, []).append(version)
            listed.add(key)
            self._note_written(resource, version)
            if not version.listed:
                self._note_overtaken(resource, version)
            value = (meta.get("annotations") or {}).get(SENTINEL_ANNOTATION)
            if value and entry.kind == "watch":
                self.sentinels.setdefault(resource, {}).setdefault(value, version.t)
        if entry.kind == "listed" and resource != UNLISTED:
            _record_removals(self.versions, entry, listed)

    def _note_written(self, resource: str, version: Version) -> None:
        """Record a late write.

        A write sets the time of its field manager, unless it only removes fields; a deletion request sets the
        time by which the object must be removed. The API server takes both from its clock, in whole seconds
        (k8s.io/apimachinery/pkg/util/managedfields, and BeforeDelete in k8s.io/apiserver/pkg/registry/rest),
        so they do not change for another write within the same second.
        """
        meta = version.object["metadata"]
        uid, write_times = str(meta["uid"]), _write_times(meta)
        previous = self._written.get(uid, ("", ""))
        self._written[uid] = max(previous, write_times)
        if version.listed or version.deleted or write_times <= previous:
            return
        written_s = parse_time(write_times[0]) if write_times[0] > previous[0] else _deletion_request_s(meta)
        late_s = version.t - (written_s - self._wall_offset_s)
        if late_s > _RESOLUTION_S + LATE_S:
            self.late.append(Late(version.t, resource, late_s, late_s - _RESOLUTION_S))

    def _note_overtaken(self, resource: str, version: Version) -> None:
        """Record a write that was received after a newer one of another watch.

        etcd's revision counts the writes of all resources, but a resource may have an etcd of its own
        (kube-apiserver's --etcd-servers-overrides, mostly used for Events), and KEP-5504 guarantees the order
        within one resource only. So Events are no reference, and an order that contradicts the sentinels
        proves no delay.
        """
        revision = int(version.object["metadata"]["resourceVersion"])
        newer = bisect_right(self._newest, revision, key=lambda receipt: receipt[1])
        if newer == len(self._newest):
            if resource != "events":
                self._newest.append((version.t, revision))
            return
        since_t, until_t = self._newest[max(0, newer - 1)][0], self._newest[newer][0]
        if version.t - until_t > LATE_S and until_t > self._written_after_t(resource):
            self.late.append(Late(version.t, resource, version.t - since_t, version.t - until_t))

    def _written_after_t(self, resource: str) -> float:
        """Return a time (s) before the last write that a watch delivered; infinite before two sentinels.

        The write is later than the last sentinel, which was sent after all watches delivered the one before.
        """
        values = list(self.sentinels.get(resource, ()))
        if len(values) < 2:
            return math.inf
        return max(times.get(values[-2], 0.0) for times in self.sentinels.values())


def _write_times(meta: Mapping[str, Json]) -> tuple[str, str]:
    """Return when a field of an object was last written, and by when the object must be removed."""
    last_write = max((str(field_.get("time", "")) for field_ in meta.get("managedFields") or ()), default="")
    return last_write, str(meta.get("deletionTimestamp") or "")


def _deletion_request_s(meta: Mapping[str, Json]) -> float:
    """Return when the deletion of an object was requested (s since the epoch)."""
    return parse_time(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds") or 0)


def _put(entries: list[Entry], entry: Entry) -> None:
    """Insert an entry by its time, after those of the same time."""
    if not entries or entries[-1].t <= entry.t:
        entries.append(entry)
    else:
        insort(entries, entry, key=lambda other: other.t)


def _record_removals(versions: Mapping[Key, list[Version]], entry: Entry, listed: Set[Key]) -> None:
    """Record the removal, at an unknown time, of objects that a LIST after a gap lacks."""
    for key, versions_ in versions.items():
        if key[0] == entry.data["resource"] and key not in listed and not versions_[-1].deleted:
            versions_.append(Version(entry.t, True, versions_[-1].object, listed=True))


def received(entry: Entry) -> Iterator[Version]:
    """Yield the objects of an entry; bookmarks and errors of a watch have none."""
    if entry.kind == "watch" and entry.data["type"] in ("ADDED", "MODIFIED", "DELETED"):
        yield Version(entry.t, entry.data["type"] == "DELETED", entry.data["object"])
    elif entry.kind == "listed":
        for item in entry.data["items"]:
            yield Version(entry.t, False, item, listed=True)


PROBED = ("injected", "unproven", "unanswered")
"""Results of a fault's probe: effect confirmed, no effect, no answer."""


@dataclass(frozen=True)
class Gap:
    """A gap in a watch; times in s.

    Args:
        since_t: receipt of the last sentinel before it. Later events may be late already: the API server ends
            watches that fall behind.
        back_t: when the watch was open again.
        until_t: when the watch had delivered everything up to `back_t`; infinite if it never did.
        is_lossy: whether events may be lost. Otherwise the watch resumed from its resourceVersion, and
            delivered all events of the gap in order, but late.
        reason: why the watch broke.
    """

    since_t: float
    back_t: float
    until_t: float
    is_lossy: bool
    reason: str


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

    @cached_property
    def _derived(self) -> dict[object, Any]:
        return {}

    def derived(self, derive: Callable[[History, *Args], Result], *args: *Args) -> Result:
        """Return what a function derives from this history; it is called once for the same arguments."""
        key = (derive, args)
        if key not in self._derived:
            self._derived[key] = derive(self, *args)
        result: Result = self._derived[key]
        return result

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

    def from_wall(self, timestamp: str, received_t: float = float("inf")) -> float:
        """Convert an API timestamp (RFC 3339) that was seen at `received_t` to the monotonic clock (s)."""
        return self.from_epoch(parse_time(timestamp), received_t)

    def from_epoch(self, wall_s: float, received_t: float = float("inf")) -> float:
        """Convert a time of the host's wall clock (s since the epoch) to the monotonic clock (s).

        A wall clock that was set back shows a time twice. The later one is returned unless it is after
        `received_t`; the slack near such a step allows for the other one.
        """
        for since_t, offset_s in reversed(self.wall_offsets):
            if since_t <= wall_s - offset_s <= received_t:
                return wall_s - offset_s
        return wall_s - self.wall_offset_s(received_t)

    @property
    def late(self) -> Sequence[Late]:
        """Late events of watches without a gap; after a gap, a watch delivers missed events late."""

        def was_in_gap(late: Late) -> bool:
            written_t = late.t - late.late_s
            return any(written_t <= gap.back_t for gap in self.gaps(late.resource, written_t, late.t))

        return [late for late in self._fold.late if not was_in_gap(late)]

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
        gap restarts the state: objects that are not on it were removed.
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

    def gaps(self, resource: str, since_t: float, until_t: float) -> Iterator[Gap]:
        """Yield the gaps in a watch that overlap [since_t, until_t], in time order.

        A gap lasts until the watch delivers a sentinel that was sent after it was back: a resumed watch first
        delivers the events of the gap, in one burst and without their times.
        """
        for entry in self.of_kind("gap"):
            if entry.data["resource"] != resource:
                continue
            gap = self._gap(entry)
            if gap.since_t <= until_t and gap.until_t >= since_t:
                yield gap

    def gap(self, resource: str, since_t: float, until_t: float) -> Gap | None:
        """Return the first gap in a watch that overlaps [since_t, until_t]."""
        return next(self.gaps(resource, since_t, until_t), None)

    def _gap(self, entry: Entry) -> Gap:
        resource, last_t = entry.data["resource"], float(entry.data["since"])
        receipts = (received_t for _sent_t, received_t in self._sentinels(resource) if received_t <= last_t)
        since_t, caught_up_t = max(receipts, default=last_t), self._caught_up_t(resource, entry.t)
        is_listed = any(
            listed.data["resource"] == resource and last_t <= listed.t <= entry.t
            for listed in self.of_kind("listed")
        )
        is_lossy = is_listed or caught_up_t == float("inf")
        return Gap(since_t, entry.t, caught_up_t, is_lossy, str(entry.data["reason"]))

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

    def passed_t(self, resource: str, rv: int) -> float | None:
        """Return when a watch first delivered a bookmark or an event of `rv` or later (s)."""
        for entry in self._fold.by_resource.get(resource, ()):
            if entry.kind == "watch" and int(entry.data["object"]["metadata"]["resourceVersion"]) >= rv:
                return entry.t
        return None


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

    A recording that writes nothing has no sentinels. Each of its watches must have delivered a bookmark or an
    event at or after the resource version of the LIST, and with it everything before
    (kubernetes.io/docs/reference/using-api/api-concepts, "Watch bookmarks"). Such a fence is valid up to its
    own time, when the LIST was requested.
    """
    fences = history.of_kind("fence")
    if not fences:
        return _no_fence(history)
    last = fences[-1]
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    needed = {*recorded, *resources, *(last.data.get("sentinels") or ()), *last.data["listed"]}
    return history.derived(_evaluate, tuple(sorted(needed)))


def stored_events(history: History, resource: str) -> Fence:
    """Evaluate whether all events that the watch of a resource received up to the last fence are stored.

    A watch may have missed events all the same: `fence` compares it with the LIST, too.
    """
    fences = history.of_kind("fence")
    if not fences:
        return _no_fence(history)
    last = fences[-1]
    sentinels, listed = last.data.get("sentinels"), last.data["listed"]
    if resource not in listed or (sentinels is not None and resource not in sentinels):
        return Fence(False, last.t, f"the fence does not include {resource}")
    if sentinels is None:
        delivered_t = history.passed_t(resource, int(listed[resource]["rv"]))
        awaited = f"a bookmark of {listed[resource]['rv']} or later"
    else:
        delivered_t = history.sentinel_t(resource, sentinels[resource])
        awaited = f"sentinel {sentinels[resource]}"
    if delivered_t is None:
        return Fence(False, last.t, f"the watch of {resource} never delivered {awaited}")
    stored = history.received(resource, delivered_t)
    if listed[resource].get("received", stored) != stored:
        reason = f"{listed[resource]['received']} events of {resource} were received, {stored} are stored"
        return Fence(False, last.t, reason)
    return Fence(True, last.t if sentinels is None else delivered_t, "")


def _no_fence(history: History) -> Fence:
    return Fence(False, history.ended_t, "the recording has no fence")


def _evaluate(history: History, needed: Sequence[str]) -> Fence:
    last = history.of_kind("fence")[-1]
    if not needed:
        return Fence(False, last.t, "the fence has no watch")
    valid_until = []
    for resource in needed:
        stored = stored_events(history, resource)
        if not stored.passed:
            return stored
        valid_until.append(stored.t)
        listed = last.data["listed"][resource]
        folded = history.folded(resource, int(listed["rv"]))
        different = set(folded.items()) ^ set(listed["objects"].items())
        if different:
            reason = f"{len(different)} states of {resource} differ between LIST and watch"
            return Fence(False, last.t, reason)
    return Fence(True, min(valid_until), "")
