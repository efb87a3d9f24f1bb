"""The shapes that a moment can have: a change of an object, or an entry that says it.

From its shape follow the watches that a moment is read from, whether it can come at all, and what was seen
last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from nodeproof.checks.occurrence import Args, Occurrence
from nodeproof.model.cluster import CLUSTER_WIDE
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import LISTED, matches, value_at
from nodeproof.model.pattern import fault as pattern_fault
from nodeproof.model.pattern import paths as pattern_paths
from nodeproof.model.slack import Span

Json = Any


@dataclass(frozen=True)
class Reference:
    """An object; all objects of a resource for what is `Written`."""

    resource: str
    namespace: str = ""
    name: str = ""

    def seen(self, history: History) -> tuple[Version, ...]:
        """Every state of the object, in the order of receipt."""
        return history.versions(self.resource, self.namespace, self.name)


@dataclass(frozen=True)
class Became:
    """An object changes from not matching to matching; with `gone`, its removal is a match too.

    With `born`, an object that the watch saw made in that state counts; one on a LIST never does.
    """

    of: Reference
    pattern: Json = None
    gone: bool = False
    born: bool = False

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every change to matching."""
        for before, after in changes(self.of.seen(history)):
            born = before is None and self.born and not after.listed
            if self.holds(after) and (born or (before is not None and not self.holds(before))):
                yield Occurrence(after.t, revision=_revision(after))

    def holds(self, seen: Version) -> bool:
        """Whether an object is in that state."""
        if self.gone and seen.deleted:
            return True
        return self.pattern is not None and matches(self.pattern, seen.object)


@dataclass(frozen=True)
class Made:
    """An object is made, as the watch saw it; one on a LIST is older than the recording."""

    of: Reference
    pattern: Json = None

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every time that it was made: under one name there may be one after another."""
        made = (after for before, after in changes(self.of.seen(history)) if before is None)
        wanted = (seen for seen in made if self.pattern is None or matches(self.pattern, seen.object))
        return (Occurrence(seen.t, revision=_revision(seen)) for seen in wanted if not seen.listed)


@dataclass(frozen=True)
class Written:
    """Any object of a resource is written, matching."""

    of: Reference
    pattern: Json

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every write that the watch saw."""
        for seen in history.all_versions(self.of.resource):
            if not seen.deleted and not seen.listed and matches(self.pattern, seen.object):
                yield Occurrence(seen.t)


@dataclass(frozen=True)
class Changed:
    """What stands at a path of an object becomes another; a field that is not there is a value, too.

    With `lasting`, only what is told counts: over states, and namesakes, that tell nothing.
    """

    of: Reference
    path: str
    lasting: bool = False

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every such change."""
        last: Json = None
        for before, after in changes(self.of.seen(history)):
            told = value_at(self.path, after.object)
            if self.lasting and not told:
                continue
            is_first = not last if self.lasting else before is None
            if not is_first and told != last:
                yield Occurrence(after.t)
            last = told


@dataclass(frozen=True)
class Rewritten:
    """In a list of one of these objects, what matches a pattern appears or becomes another.

    That some of it is gone is no such write: a controller that replaces an element may add first and remove
    then.
    """

    of: Reference
    names: tuple[str, ...]
    path: str
    pattern: Json

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every such write, of whichever object."""
        came = [Occurrence(t, {"name": name}) for name in self.names for t in self._times(history, name)]
        yield from sorted(came, key=lambda each: each.t)

    def seen(self, history: History, name: str) -> tuple[Version, ...]:
        """Every state of one of the objects."""
        return history.versions(self.of.resource, self.of.namespace, name)

    def found(self, seen: Version) -> list[Json]:
        """What matches in a state."""
        return [each for each in value_at(self.path, seen.object) or () if matches(self.pattern, each)]

    def _times(self, history: History, name: str) -> Iterator[float]:
        for before, after in changes(self.seen(history, name)):
            told = [] if after.deleted else self.found(after)
            if before is not None and any(each not in self.found(before) for each in told):
                yield after.t


@dataclass(frozen=True)
class Said:
    """An entry of the recording says it: one of these kinds, matching the pattern beside it."""

    by: tuple[tuple[str, Json], ...]
    tells: Callable[[History, Entry], Json] | None = None

    def each(self, history: History) -> Iterator[Occurrence]:
        """Every such entry."""
        said = [
            entry
            for kind, pattern in self.by
            for entry in history.of_kind(kind)
            if matches(pattern, entry.data)
        ]
        for entry in sorted(said, key=lambda entry: entry.t):
            yield Occurrence(entry.t, self.tells(history, entry) if self.tells else {})


def _is_able(_history: History, _within: Span) -> str:
    """Nothing keeps it from coming."""
    return ""


@dataclass(frozen=True)
class Computed:
    """An algorithm over the states of some resources finds it, once."""

    resources: tuple[str, ...]
    first: Callable[[History, float], Occurrence | None]
    parts: tuple[Moment, ...] = ()
    """The moments that it is made of."""
    unable: Callable[[History, Span], str] = _is_able
    """Why it cannot have come at each of these times, or nothing."""


OfAnObject = Became | Made | Written | Changed | Rewritten
Shape = OfAnObject | Said | Computed


def find(history: History, shape: Shape, since_t: float) -> Occurrence | None:
    """The first occurrence at or after `since_t` (s)."""
    if isinstance(shape, Computed):
        return shape.first(history, since_t)
    return next((came for came in shape.each(history) if came.t >= since_t), None)


def find_state(history: History, shape: Shape, since_t: float) -> Occurrence | None:
    """The first occurrence at or after `since_t` (s), or an object that is made in the state under the name
    of one that was not in it, where that is earlier.
    """
    came = find(history, shape, since_t)
    if not isinstance(shape, Became):
        return came
    turns = (
        after
        for before, after in pairwise(shape.of.seen(history))
        if after.t > since_t and shape.holds(after) and not shape.holds(before)
    )
    first = next(turns, None)
    if first is None or (came is not None and came.t <= first.t):
        return came
    return Occurrence(first.t, revision=_revision(first))


def resources(shape: Shape) -> tuple[str, ...]:
    """Which watches it is read from."""
    if isinstance(shape, Said):
        return ()
    return shape.resources if isinstance(shape, Computed) else (shape.of.resource,)


def paths(shape: Shape) -> Mapping[str, frozenset[str]]:
    """The fields that its pattern or its path names, by resource."""
    if isinstance(shape, Changed):
        return {shape.of.resource: frozenset({shape.path})}
    if isinstance(shape, Rewritten):
        return {shape.of.resource: pattern_paths({f"{shape.path}{LISTED}": shape.pattern})}
    if isinstance(shape, Became | Made | Written) and shape.pattern is not None:
        return {shape.of.resource: pattern_paths(shape.pattern)}
    return {}


def fault(shape: Shape) -> str:
    """Why it could never come, whatever happens, or nothing: an object that is not named as the API names it,
    a pattern that is none.
    """
    if isinstance(shape, Rewritten) and not shape.names:
        return f"no object of {shape.of.resource} is named"
    pattern = shape.pattern if isinstance(shape, Became | Made | Written | Rewritten) else None
    if pattern is not None and pattern_fault(pattern):
        return pattern_fault(pattern)
    if not isinstance(shape, Became | Made | Changed):
        return ""
    if isinstance(shape, Changed) and shape.path == "metadata.uid":
        return "an object with another uid is another object"
    if not shape.of.name:
        return f"an object of {shape.of.resource} without a name"
    if shape.of.resource in CLUSTER_WIDE:
        return f"objects of {shape.of.resource} are in no namespace" if shape.of.namespace else ""
    return "" if shape.of.namespace else f"objects of {shape.of.resource} are in a namespace; none is given"


def unable(history: History, shape: Shape, within: Span) -> str:
    """Why it cannot have come at each time of a span, or nothing: its object was away for a part of it, or in
    that state already.

    Without this, that something never comes would be proven by an object that never was.
    """
    if isinstance(shape, Computed):
        return shape.unable(history, within)
    if not isinstance(shape, Became | Changed | Rewritten):
        return ""
    names = shape.names if isinstance(shape, Rewritten) else (shape.of.name,)
    away = (_went_away(history, replace(shape.of, name=name), within) for name in names)
    return _already(history, shape, within.since_t) or next(filter(None, away), "")


def never_there(history: History, shape: Shape, until_t: float) -> str:
    """Which object was not there up to a time (s), or nothing."""
    if not isinstance(shape, Became | Changed):
        return ""
    there = any(version.t <= until_t for version in shape.of.seen(history))
    return "" if there else f"{shape.of.name} was never there"


def _went_away(history: History, of: Reference, within: Span) -> str:
    gone = (seen.t for seen in of.seen(history) if seen.deleted and within.since_t < seen.t <= within.until_t)
    since_t = next(gone, None)
    return "" if since_t is None else f"{of.name} was gone {since_t - within.since_t:.2f} s later"


def _already(history: History, shape: Became | Changed | Rewritten, t: float) -> str:
    """Why it cannot come any more after `t` (s), or nothing."""
    if isinstance(shape, Rewritten):
        return _all_rewritten(history, shape, t)
    seen = [version for version in shape.of.seen(history) if version.t <= t]
    if not seen:
        return f"{shape.of.name} was not there yet"
    if seen[-1].deleted:
        return f"{shape.of.name} was gone already"
    return "it had come already" if isinstance(shape, Became) and shape.holds(seen[-1]) else ""


def _all_rewritten(history: History, shape: Rewritten, t: float) -> str:
    """Why none of the objects can be written any more after `t` (s), or nothing; or why one may not count."""
    last = {name: [each for each in shape.seen(history, name) if each.t <= t][-1:] for name in shape.names}
    for name, seen in last.items():
        if not seen or seen[-1].deleted:
            return f"{name} was not there"
    if all(shape.found(seen[-1]) for seen in last.values()):
        return "it had come to all of them already"
    return ""


def changes(seen: tuple[Version, ...]) -> Iterator[tuple[Version | None, Version]]:
    """Each state with the one before it; none before the first of an object, or of a namesake."""
    before: Version | None = None
    for after in seen:
        same = before is not None and _uid(before) == _uid(after)
        yield before if same else None, after
        before = after


def _revision(version: Version) -> int:
    """Of a removed object it is the removal's."""
    return int(version.object["metadata"].get("resourceVersion") or 0)


def _uid(version: Version) -> str:
    return str(version.object["metadata"]["uid"])


def told_by_step(history: History, step: Entry) -> Args:
    """How long the healing took, where the step is its beginning: windows count from its end."""
    if step.data["step"] != "healing":
        return {}
    ends = [
        entry.t - step.t
        for entry in history.of_kind("fault")
        if entry.data["id"] == step.data["id"] and entry.data["step"] == "healed"
    ]
    return {"healing_took_s": round(ends[0], 3)} if ends else {}
