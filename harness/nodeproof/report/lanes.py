"""What lanes of several kinds are made of: the lives of a name, the runs of a state, marks in rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nodeproof.model.history import History, Version
from nodeproof.report import drawing
from nodeproof.report.drawing import Lane, Mark

Json = Any


@dataclass(frozen=True)
class Life:
    """One object that bore a name: its states, and up to when it was there (s of the history's clock).

    `is_gone` tells that its end was seen; one without was there when the recording ended, or when the name
    was seen to be another's.
    """

    seen: tuple[Version, ...]
    end: float
    is_gone: bool

    @property
    def start(self) -> float:
        """When it was seen first (s)."""
        return self.seen[0].t

    def states(self) -> tuple[Version, ...]:
        """Without its removal."""
        return tuple(version for version in self.seen if not version.deleted)


def lives(history: History, resource: str, namespace: str, name: str) -> list[Life]:
    """Every object that bore this name, one after the other, told apart by their uids."""
    found: list[list[Version]] = []
    for version in history.versions(resource, namespace, name):
        last = found[-1][-1] if found else None
        if last is None or _uid(last) != _uid(version) or (last.deleted and not version.deleted):
            found.append([])
        found[-1].append(version)
    ends = [each[0].t for each in found[1:]] + [history.ended_t]
    return [_life(seen, until_t) for seen, until_t in zip(found, ends, strict=True)]


def _uid(version: Version) -> Json:
    return version.object["metadata"].get("uid")


def _life(seen: Sequence[Version], until_t: float) -> Life:
    gone_t = next((version.t for version in seen if version.deleted), None)
    return Life(tuple(seen), until_t if gone_t is None else gone_t, gone_t is not None)


def is_going(version: Version) -> bool:
    """Whether somebody asked for its deletion."""
    return bool(version.object["metadata"].get("deletionTimestamp"))


def ends(row: Sequence[Life], word: str, span: float) -> tuple[Mark, ...]:
    """Marks where lives of one row end, on an axis of `span` (s): those that another follows soon get none,
    as its bar begins there, and the last alone says its word.
    """
    room = drawing.room("", "", span)
    marks = [
        Mark(life.end, "✕", "", word)
        for life, following in pairwise(row)
        if life.is_gone and following.start - life.end > room
    ]
    return (*marks, *(Mark(life.end, "✕", word) for life in row[-1:] if life.is_gone))


def runs(states: Sequence[tuple[float, Any]], end: float) -> Iterator[tuple[float, float, Any]]:
    """Join equal neighbours into (start, end, state)."""
    start = 0
    for index in range(1, len(states) + 1):
        if index == len(states):
            yield states[start][0], end, states[start][1]
        elif states[index][1] != states[start][1]:
            yield states[start][0], states[index][0], states[start][1]
            start = index


def stacked(marks: Sequence[Mark], span: float, group: str, name: str = "") -> tuple[Lane, ...]:
    """Marks in as few lanes as keep their words apart, the first with a name; `span` is the length of the
    time axis (s).
    """
    rows: list[list[Mark]] = [[]]
    for mark in sorted(marks, key=lambda mark: mark.t):
        free = (
            row for row in rows if not row or mark.t - row[-1].t > drawing.room(row[-1].word, mark.word, span)
        )
        row = next(free, None)
        if row is None:
            row = []
            rows.append(row)
        row.append(mark)
    return tuple(Lane(group, "" if at else name, marks=tuple(row)) for at, row in enumerate(rows))


def span_of(history: History) -> float:
    """The length of a recording (s)."""
    return max(history.ended_t - history.began_t, 1.0)
