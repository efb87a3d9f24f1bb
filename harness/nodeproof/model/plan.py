"""A static plan: which scenarios a slot runs, one after another, and when all of them are done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """A scenario's expected duration (s), what it is known from, and whether it shares its lab with no other
    slot; what it may harm, and by which faults.
    """

    scenario: str
    lasts_s: float
    known_from: str
    is_alone: bool = False
    targets: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slot:
    """What one worker runs, in this order."""

    scenarios: tuple[Expected, ...]

    @property
    def lasts_s(self) -> float:
        """How long all of it takes (s)."""
        return sum(each.lasts_s for each in self.scenarios)

    @property
    def is_alone(self) -> bool:
        """Whether one of them is: the slot has its lab to itself from the beginning on. One that started
        beside others' scenarios would disturb them.
        """
        return any(each.is_alone for each in self.scenarios)


def pack(expected: Iterable[Expected], slots: int) -> tuple[Slot, ...]:
    """Longest first, each into the slot that is done first: at most 4/3 of the shortest plan there is.

    Of two that take as long, the one that is told first comes first; what is alone comes before what is not.
    A slot without a scenario is none.
    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
    """
    filled: list[list[Expected]] = [[] for _ in range(slots)]
    for each in sorted(expected, key=lambda one: -one.lasts_s):
        min(filled, key=lambda slot: (sum(one.lasts_s for one in slot), len(slot))).append(each)
    return tuple(Slot(tuple(sorted(slot, key=lambda one: not one.is_alone))) for slot in filled if slot)


def critical(slots: Iterable[Slot]) -> Slot:
    """The slot that is done last; there is at least one."""
    return max(slots, key=lambda slot: slot.lasts_s)
