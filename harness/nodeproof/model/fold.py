"""Index of a history's entries that is updated with each new entry."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodeproof.model import redact

Json = Any
SENTINEL_ANNOTATION = "nodeproof.dev/sentinel"
Key = tuple[str, str, str]
"""A resource, a namespace and a name."""
_OFFSETS = {"begun": "wall_offset_s", "wall": "offset_s"}
"""Fields of the entries that hold the host's wall clock minus its monotonic one."""
LATE_S = 1.2
"""Longest normal delay (s) between a write's time in the API, which has whole seconds, and its receipt."""


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
    """A write that a watch delivered at `t` (s, monotonic), `late_s` after its time in the API."""

    t: float
    resource: str
    late_s: float


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
    """Writes received more than `LATE_S` after their time in the API."""
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
            value = (meta.get("annotations") or {}).get(SENTINEL_ANNOTATION)
            if value and entry.kind == "watch":
                self.sentinels.setdefault(resource, {}).setdefault(value, version.t)
        if entry.kind == "listed":
            _note_gone(self.versions, entry, listed)

    def _note_written(self, resource: str, version: Version) -> None:
        """Record a late write.

        A write sets the time of its field manager, unless it only removes fields; a deletion request sets the
        time by which the object must be gone. The API server takes both from its clock, in whole seconds
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
        if late_s > LATE_S:
            self.late.append(Late(version.t, resource, late_s))


def _write_times(meta: Mapping[str, Json]) -> tuple[str, str]:
    """Return when a field of an object was last written, and by when the object must be gone."""
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


def _note_gone(versions: Mapping[Key, list[Version]], entry: Entry, listed: Set[Key]) -> None:
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
