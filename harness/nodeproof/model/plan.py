"""A static plan: which scenarios a slot runs, one after another, and when all of them are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Size:
    """Of a lab: how many nodes, in how many zones."""

    nodes: int
    zones: int


@dataclass(frozen=True)
class Expected:
    """A scenario's expected duration (s), what it is known from, and whether it shares its lab with no other
    slot; what it may harm, and by which faults. `size` is that of a lab which only it and others that ask
    for the same have.
    """

    scenario: str
    lasts_s: float
    known_from: str
    is_alone: bool = False
    targets: str = ""
    faults: tuple[str, ...] = ()
    size: Size | None = None


@dataclass(frozen=True)
class Slot:
    """What one worker runs, in this order."""

    scenarios: tuple[Expected, ...]

    @property
    def lasts_s(self) -> float:
        """How long all of it takes (s)."""
        return _sum_s(self.scenarios)

    @property
    def is_alone(self) -> bool:
        """Whether one of them is: the slot has its lab to itself from the beginning on. One that started
        beside others' scenarios would disturb them.
        """
        return any(each.is_alone for each in self.scenarios)


def pack(expected: Iterable[Expected], slots: int) -> tuple[Slot, ...]:
    """Longest first, each into the slot that is done first: at most 4/3 of the shortest plan there is.

    Those that ask for a lab of one size go together, one after another in the same lab. Of two that take as
    long, the one that is told first comes first; what has a lab of its size comes before what is alone, and
    that before what is not. A slot without a scenario is none.
    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
    """
    filled: list[list[Expected]] = [[] for _ in range(slots)]
    for group in sorted(_groups(expected), key=lambda each: -_sum_s(each)):
        min(filled, key=lambda slot: (_sum_s(slot), len(slot))).extend(group)
    return tuple(Slot(tuple(sorted(slot, key=_turn))) for slot in filled if slot)


def _groups(expected: Iterable[Expected]) -> Iterator[Sequence[Expected]]:
    """What is not to be apart: those with labs of one size, and each of the others alone."""
    sized: dict[Size, list[Expected]] = {}
    for each in expected:
        if each.size is None:
            yield [each]
        else:
            sized.setdefault(each.size, []).append(each)
    yield from sized.values()


def _turn(each: Expected) -> tuple[bool, Size, bool]:
    return each.size is None, each.size or Size(0, 0), not each.is_alone


def _sum_s(scenarios: Iterable[Expected]) -> float:
    return sum(each.lasts_s for each in scenarios)


def critical(slots: Iterable[Slot]) -> Slot:
    """The slot that is done last; there is at least one."""
    return max(slots, key=lambda slot: slot.lasts_s)
