"""Entries of a history, put in order and indexed as they come: nothing is read twice."""

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
"""Which entries say what the host's wall clock is ahead of its monotonic one by, and where."""
LATE_S = 1.2
"""So long (s) after the API says that something was written it may be received: it says whole seconds."""


@dataclass(frozen=True)
class Entry:
    """One thing that was seen or done at `t` (s, monotonic)."""

    t: float
    kind: str
    data: Mapping[str, Json]

    def to_json(self) -> str:
        """One line of `history.jsonl`."""
        return json.dumps({"t": round(self.t, 6), "kind": self.kind, **self.data}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Entry:
        """Read one line of `history.jsonl`. Raises ValueError when it is not one."""
        data = json.loads(line)
        if not isinstance(data, dict) or not {"t", "kind"} <= data.keys():
            raise ValueError(f"not an entry of a history: {line[:80]!r}")
        return cls(float(data.pop("t")), str(data.pop("kind")), data)


def clean(entry: Entry) -> tuple[Entry, str]:
    """An entry without what is secret, and its line: what is judged now and later is the same."""
    line = entry.to_json()
    if not redact.is_suspect(line):
        return entry, line
    cleaned = Entry(entry.t, entry.kind, redact.value(entry.data))
    return cleaned, cleaned.to_json()


@dataclass(frozen=True)
class Version:
    """A state of one object, and when the harness received it; `object` is the last one when it was deleted.

    `listed` tells that it came from a LIST: it held at `t` and may be much older.
    """

    t: float
    deleted: bool
    object: Mapping[str, Json]
    listed: bool = False


@dataclass(frozen=True)
class Late:
    """A write that a watch delivered at `t` (s, monotonic), so long (s) after the API says it was written."""

    t: float
    resource: str
    late_s: float


def parse_time(timestamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 time. Raises ValueError."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


@dataclass
class Fold:
    """Entries in the order of their times, by kind and by resource, and what follows from them.

    It grows: whoever holds one sees what was added since. Entries of one resource come in order.
    """

    entries: list[Entry] = field(default_factory=list)
    by_kind: dict[str, list[Entry]] = field(default_factory=dict)
    by_resource: dict[str, list[Entry]] = field(default_factory=dict)
    versions: dict[Key, list[Version]] = field(default_factory=dict)
    sentinels: dict[str, dict[str, float]] = field(default_factory=dict)
    """When each watch delivered each value of its sentinel first (s); one on a LIST proves no watch."""
    late: list[Late] = field(default_factory=list)
    """What came more than `LATE_S` after it was written."""
    _written: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What the states of each object, by its uid, say of when it was written last."""
    _wall_offset_s: float = 0.0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Fold:
        """All of these."""
        made = cls()
        for entry in entries:
            made.add(entry)
        return made

    def add(self, entry: Entry) -> None:
        """One more."""
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
        """A write sets the time at whoever wrote a field, unless it only removes some; one that asks for an
        object's removal sets the time by which it has to be gone. The API server takes both from its clock,
        in whole seconds (k8s.io/apimachinery/pkg/util/managedfields, and BeforeDelete in
        k8s.io/apiserver/pkg/registry/rest): of what follows another write within a second they say nothing.
        """
        meta = version.object["metadata"]
        uid, says = str(meta["uid"]), _says(meta)
        before = self._written.get(uid, ("", ""))
        self._written[uid] = max(before, says)
        if version.listed or version.deleted or says <= before:
            return
        written_s = parse_time(says[0]) if says[0] > before[0] else _asked_s(meta)
        late_s = version.t - (written_s - self._wall_offset_s)
        if late_s > LATE_S:
            self.late.append(Late(version.t, resource, late_s))


def _says(meta: Mapping[str, Json]) -> tuple[str, str]:
    """When somebody wrote a field of an object last, and by when it has to be gone."""
    written = max((str(each.get("time", "")) for each in meta.get("managedFields") or ()), default="")
    return written, str(meta.get("deletionTimestamp") or "")


def _asked_s(meta: Mapping[str, Json]) -> float:
    """When the removal of an object was asked for (s since the epoch)."""
    return parse_time(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds") or 0)


def _put(entries: list[Entry], entry: Entry) -> None:
    """Where its time belongs; after those of the same time."""
    if not entries or entries[-1].t <= entry.t:
        entries.append(entry)
    else:
        insort(entries, entry, key=lambda each: each.t)


def _note_gone(versions: Mapping[Key, list[Version]], entry: Entry, listed: Set[Key]) -> None:
    """What a LIST after a gap lacks was removed in it, at an unknown time."""
    for key, seen in versions.items():
        if key[0] == entry.data["resource"] and key not in listed and not seen[-1].deleted:
            seen.append(Version(entry.t, True, seen[-1].object, listed=True))


def received(entry: Entry) -> Iterator[Version]:
    """The objects of an entry; bookmarks and errors of a watch hold none."""
    if entry.kind == "watch" and entry.data["type"] in ("ADDED", "MODIFIED", "DELETED"):
        yield Version(entry.t, entry.data["type"] == "DELETED", entry.data["object"])
    elif entry.kind == "listed":
        for item in entry.data["items"]:
            yield Version(entry.t, False, item, listed=True)
