"""Shapes of moments: a change of an object, or an entry of the recording.

The shape determines the watches that a moment is read from, whether it can occur, and the last recorded
state. `stored_as` makes a moment of a function that returns a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ParamSpec

from nodeproof.model.cluster import CLUSTER_WIDE
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.judgment import Moment, Word
from nodeproof.model.pattern import LISTED, Json, matches, value_at
from nodeproof.model.pattern import fault as pattern_fault
from nodeproof.model.pattern import paths as pattern_paths
from nodeproof.model.slack import Span

Args = Mapping[str, Any]
Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class Occurrence:
    """The time of a moment (s), with details and the etcd revision.

    Windows may depend on the details. Only a single change of one object has a revision.
    """

    t: float
    detail: Args = field(default_factory=dict)
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Reference:
    """An object; without a name, all objects of a resource."""

    resource: str
    namespace: str = ""
    name: str = ""

    def versions(self, history: History) -> tuple[Version, ...]:
        """Return every recorded state of the object, in the order of receipt."""
        return history.versions(self.resource, self.namespace, self.name)


@dataclass(frozen=True)
class Became:
    """An object changes from not matching a pattern to matching it.

    With `matches_removal`, the removal of the object also counts. With `matches_creation`, the creation of a
    matching object also counts, unless a LIST first showed it.
    """

    of: Reference
    pattern: Json = None
    matches_removal: bool = False
    matches_creation: bool = False

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every change to matching."""
        for before, after in changes(self.of.versions(history)):
            was_created = before is None and self.matches_creation and not after.listed
            if self.holds(after) and (was_created or (before is not None and not self.holds(before))):
                yield Occurrence(after.t, revision=_revision(after))

    def holds(self, version: Version) -> bool:
        """Return whether an object is in the matching state."""
        if self.matches_removal and version.deleted:
            return True
        return self.pattern is not None and matches(self.pattern, version.object)


@dataclass(frozen=True)
class Created:
    """An object is created while the watch is running; an object on a LIST is older than the recording."""

    of: Reference
    pattern: Json = None

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every creation: several objects may have had the same name."""
        created = (after for before, after in changes(self.of.versions(history)) if before is None)
        matching = (
            version for version in created if self.pattern is None or matches(self.pattern, version.object)
        )
        return (
            Occurrence(version.t, revision=_revision(version)) for version in matching if not version.listed
        )


@dataclass(frozen=True)
class Written:
    """Any object of a resource that matches a pattern is written."""

    of: Reference
    pattern: Json

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every write that the watch saw."""
        for version in history.all_versions(self.of.resource):
            if not version.deleted and not version.listed and matches(self.pattern, version.object):
                yield Occurrence(version.t)


@dataclass(frozen=True)
class Changed:
    """The value at a path of an object changes; a missing field is a value, too.

    With `ignores_empty`, states without the value are ignored, even across objects of the same name.
    """

    of: Reference
    path: str
    ignores_empty: bool = False

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every change."""
        previous: Json = None
        for before, after in changes(self.of.versions(history)):
            current = value_at(self.path, after.object)
            if self.ignores_empty and not current:
                continue
            is_first = not previous if self.ignores_empty else before is None
            if not is_first and current != previous:
                yield Occurrence(after.t)
            previous = current


@dataclass(frozen=True)
class Rewritten:
    """In a list field of one of these objects, a matching element appears or changes.

    A removal does not count: a controller that replaces an element may add the new one first.
    """

    of: Reference
    names: tuple[str, ...]
    path: str
    pattern: Json

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every such write, of any of the objects."""
        occurrences = [
            Occurrence(t, {"name": name}) for name in self.names for t in self._times(history, name)
        ]
        yield from sorted(occurrences, key=lambda occurrence: occurrence.t)

    def versions(self, history: History, name: str) -> tuple[Version, ...]:
        """Return every recorded state of one of the objects."""
        return history.versions(self.of.resource, self.of.namespace, name)

    def matching(self, version: Version) -> list[Json]:
        """Return the matching elements in a state."""
        return [
            element for element in value_at(self.path, version.object) or () if matches(self.pattern, element)
        ]

    def _times(self, history: History, name: str) -> Iterator[float]:
        for before, after in changes(self.versions(history, name)):
            elements = [] if after.deleted else self.matching(after)
            if before is not None and any(element not in self.matching(before) for element in elements):
                yield after.t


@dataclass(frozen=True)
class Recorded:
    """An entry of the recording that matches one of these pairs of kind and pattern.

    `detail` returns the details of its occurrence.
    """

    by: tuple[tuple[str, Json], ...]
    detail: Callable[[History, Entry], Json] | None = None

    def occurrences(self, history: History) -> Iterator[Occurrence]:
        """Yield every matching entry."""
        entries = [
            entry
            for kind, pattern in self.by
            for entry in history.of_kind(kind)
            if matches(pattern, entry.data)
        ]
        for entry in sorted(entries, key=lambda entry: entry.t):
            yield Occurrence(entry.t, self.detail(history, entry) if self.detail else {})


def _is_able(_history: History, _within: Span) -> str:
    """Return an empty string: nothing prevents the moment."""
    return ""


@dataclass(frozen=True)
class Computed:
    """A moment that an algorithm finds in the states of some resources, at most once."""

    resources: tuple[str, ...]
    first: Callable[[History, float], Occurrence | None]
    parts: tuple[Moment, ...] = ()
    """The moments that it is composed of."""
    unable: Callable[[History, Span], str] = _is_able
    """Returns why it cannot have occurred at some time of a span, or an empty string."""


Shape = Became | Created | Written | Changed | Rewritten | Recorded | Computed


_WORDS: dict[str, Word[Shape]] = {}
"""Every stored moment, by its name in recorded runs."""


def stored_as(
    name: str, **keys: str
) -> Callable[[Callable[Parameters, Shape]], Callable[Parameters, Moment]]:
    """Turn a function that returns a shape into the constructor of a moment.

    The moment is stored by its name and arguments, and the current code computes its shape. A name that
    recorded runs may contain must keep its meaning.

    Args:
        name: The name in recorded runs.
        **keys: The keys of parameters in recorded runs, where they differ from the parameter's name.
    """

    def decorate(function: Callable[Parameters, Shape]) -> Callable[Parameters, Moment]:
        if name in _WORDS:
            raise ValueError(f"{function.__name__} and {_WORDS[name].function.__name__} are both {name!r}")
        _WORDS[name] = Word.of(name, function, keys)
        return _WORDS[name].constructor(Moment)

    return decorate


def shape(moment: Moment) -> Shape:
    """Return the shape of a moment.

    Raises:
        KeyError: This version does not know the moment.
    """
    return _WORDS[moment.name].call(moment.args)


def module_of(moment: Moment) -> str:
    """Return the module that defines a moment, or an empty string."""
    return _WORDS[moment.name].function.__module__ if moment.name in _WORDS else ""


def find(history: History, shape: Shape, since_t: float) -> Occurrence | None:
    """Return the first occurrence at or after `since_t` (s)."""
    if isinstance(shape, Computed):
        return shape.first(history, since_t)
    return next((occurrence for occurrence in shape.occurrences(history) if occurrence.t >= since_t), None)


def find_state(history: History, shape: Shape, since_t: float) -> Occurrence | None:
    """Return the first occurrence at or after `since_t` (s), including an object created in the state.

    Such an object counts if it replaces one of the same name that was not in the state.
    """
    occurrence = find(history, shape, since_t)
    if not isinstance(shape, Became):
        return occurrence
    states = (
        after
        for before, after in pairwise(shape.of.versions(history))
        if after.t > since_t and shape.holds(after) and not shape.holds(before)
    )
    first = next(states, None)
    if first is None or (occurrence is not None and occurrence.t <= first.t):
        return occurrence
    return Occurrence(first.t, revision=_revision(first))


def resources(shape: Shape) -> tuple[str, ...]:
    """Return the resources whose watches the shape is read from."""
    if isinstance(shape, Recorded):
        return ()
    return shape.resources if isinstance(shape, Computed) else (shape.of.resource,)


def paths(shape: Shape) -> Mapping[str, frozenset[str]]:
    """Return the fields that its pattern or path names, by resource."""
    if isinstance(shape, Changed):
        return {shape.of.resource: frozenset({shape.path})}
    if isinstance(shape, Rewritten):
        return {shape.of.resource: pattern_paths({f"{shape.path}{LISTED}": shape.pattern})}
    if isinstance(shape, Became | Created | Written) and shape.pattern is not None:
        return {shape.of.resource: pattern_paths(shape.pattern)}
    return {}


def fault(shape: Shape) -> str:
    """Return why the shape can never occur (an invalid reference or pattern), or an empty string."""
    if isinstance(shape, Rewritten) and not shape.names:
        return f"no {shape.of.resource} are named"
    pattern = shape.pattern if isinstance(shape, Became | Created | Written | Rewritten) else None
    if pattern is not None and pattern_fault(pattern):
        return pattern_fault(pattern)
    if not isinstance(shape, Became | Created | Changed):
        return ""
    if isinstance(shape, Changed) and shape.path == "metadata.uid":
        return "the uid of an object never changes"
    if not shape.of.name:
        return f"the name of the object in {shape.of.resource} is missing"
    if shape.of.resource in CLUSTER_WIDE:
        return f"{shape.of.resource} are not namespaced" if shape.of.namespace else ""
    return "" if shape.of.namespace else f"{shape.of.resource} are namespaced; the namespace is missing"


def unable(history: History, shape: Shape, within: Span) -> str:
    """Return why it cannot have occurred at some time of a span, or an empty string.

    Its object may have been missing, or in the state already. Without this test, an object that never existed
    would prove an absence.
    """
    if isinstance(shape, Computed):
        return shape.unable(history, within)
    return _had_occurred(history, shape, within.since_t) or missing(history, shape, within)


def missing(history: History, shape: Shape, within: Span) -> str:
    """Return which of its objects did not exist at some time of a span, or an empty string."""
    if not isinstance(shape, Became | Changed | Rewritten):
        return ""
    names = shape.names if isinstance(shape, Rewritten) else (shape.of.name,)
    absences = (_absence(history, replace(shape.of, name=name), within) for name in names)
    return next(filter(None, absences), "")


def _absence(history: History, of: Reference, within: Span) -> str:
    versions = of.versions(history)
    before = _until(versions, within.since_t)
    if not before:
        return f"{of.name} did not exist yet"
    if before[-1].deleted:
        return f"{of.name} was already removed"
    removals = (version.t for version in _until(versions, within.until_t)[len(before) :] if version.deleted)
    removed_t = next(removals, None)
    return "" if removed_t is None else f"{of.name} was removed {removed_t - within.since_t:.2f} s later"


def lasted(history: History, shape: Shape, within: Span) -> bool:
    """Return whether its object was in the state all the time."""
    if not isinstance(shape, Became):
        return False
    versions = shape.of.versions(history)
    before = _until(versions, within.since_t)
    since = _until(versions, within.until_t)[len(before) - 1 :]
    return bool(before) and all(shape.holds(version) and not version.deleted for version in since)


def _had_occurred(history: History, shape: Shape, t: float) -> str:
    """Return that its object, or all of its objects, were in the state at `t` (s), or an empty string."""
    if isinstance(shape, Became):
        return "it had already occurred" if lasted(history, shape, Span.at(t)) else ""
    if not isinstance(shape, Rewritten):
        return ""
    latest = [_until(shape.versions(history, name), t)[-1:] for name in shape.names]
    is_in_all = all(
        versions and not versions[0].deleted and shape.matching(versions[0]) for versions in latest
    )
    return "all of them already had it" if is_in_all else ""


def _until(versions: Sequence[Version], t: float) -> Sequence[Version]:
    """Return the states up to a time (s)."""
    return [version for version in versions if version.t <= t]


def changes(versions: tuple[Version, ...]) -> Iterator[tuple[Version | None, Version]]:
    """Yield each state with the previous one of the same object, None for the first."""
    before: Version | None = None
    for after in versions:
        is_same = before is not None and _uid(before) == _uid(after)
        yield before if is_same else None, after
        before = after


def _revision(version: Version) -> int:
    """Return the resourceVersion of a state; for a removed object that of the removal."""
    return int(version.object["metadata"].get("resourceVersion") or 0)


def _uid(version: Version) -> str:
    return str(version.object["metadata"]["uid"])


def step_detail(history: History, step: Entry) -> Args:
    """Return how long healing took, if the step is its start: `windows.recovery` adds it to its bound."""
    if step.data["step"] != "healing":
        return {}
    durations = [
        entry.t - step.t
        for entry in history.of_kind("fault")
        if entry.data["id"] == step.data["id"] and entry.data["step"] == "healed"
    ]
    return {"healing_took_s": round(durations[0], 3)} if durations else {}
