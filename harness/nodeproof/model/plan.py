"""A static plan: which scenarios a slot runs, one after another, and when all of them are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

STANDING_S = 25.0
"""What it takes to put something in and to heal it: a kubelet's settings, on virtual machines without KVM,
15.4 and 11.0 s (medians of 17).
"""
NOT_HERE = "not here: "
"""Begins what a scenario that nothing can be proven by here is known from."""


@dataclass(frozen=True, order=True)
class Size:
    """Of a lab: how many nodes, in how many zones; `spread` how many in each where they are not even."""

    nodes: int
    zones: int
    spread: tuple[int, ...] = ()

    def __str__(self) -> str:
        """For people."""
        zones = " + ".join(str(nodes) for nodes in self.spread)
        return f"{self.nodes} nodes, zones: {zones or self.zones}"


@dataclass(frozen=True)
class Expected:
    """A scenario's expected duration (s), what it is known from, and whether it shares its lab with no other
    slot; what it may harm, and by which faults. `size` is that of the lab while it, or others that ask
    for the same, run in it, `standing` the same for those before which the same is put in.
    """

    scenario: str
    lasts_s: float
    known_from: str
    is_alone: bool = False
    targets: str = ""
    faults: tuple[str, ...] = ()
    size: Size | None = None
    standing: str = ""

    @property
    def runs_here(self) -> bool:
        """Whether it can prove something in this run."""
        return not self.known_from.startswith(NOT_HERE)

    @property
    def stays(self) -> bool:
        """Whether it is in its slot for what others there share with it: a lab, or what is put in before."""
        return not self.runs_here or self.is_alone or self.size is not None or bool(self.standing)


@dataclass(frozen=True)
class Slot:
    """What one worker runs, in this order."""

    scenarios: tuple[Expected, ...]

    @property
    def lasts_s(self) -> float:
        """How long all of it takes (s)."""
        return _sum_s(self.scenarios)


def pack(expected: Iterable[Expected], slots: int, start_s: float) -> tuple[Slot, ...]:
    """Longest first, each into the slot that is done first: at most 4/3 of the shortest plan there is.

    Those that have a lab of one size to themselves go together, one after another in the same lab, and so do
    those before which the same is put in, unless the longest slot would last longer than with each by itself,
    by more than what is saved: the start of another lab (s), or `STANDING_S`. Then the longest such group is
    halved. Of two that take as long, the one that is told first comes first; what has a lab of its size comes
    before what is alone, and that before what is not; those before which the same is put in come one after
    another. A slot without a scenario is none.
    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
    """
    filled = _balanced(list(expected), slots, start_s, 0)
    return tuple(Slot(tuple(sorted(slot, key=_turn))) for slot in filled if slot)


def divide(expected: Iterable[Expected], of: int, start_s: float) -> tuple[tuple[Expected, ...], ...]:
    """Shards, each for a machine of its own: as `pack` does it, whatever order they are told in. A shard is
    empty only where there are fewer scenarios than shards.
    """
    ordered = sorted(expected, key=lambda each: each.scenario)
    return tuple(map(tuple, _balanced(ordered, of, start_s, of)))


def movable(slots: Iterable[Slot]) -> tuple[Expected, ...]:
    """Longest first, those that any other slot may take as well: all but what a slot begins with, and what
    stays in it.
    """
    found = [each for slot in slots for each in slot.scenarios[1:] if not each.stays]
    return tuple(sorted(found, key=lambda each: -each.lasts_s))


def shares(slot: Slot, slots: Iterable[Slot]) -> bool:
    """Whether a slot needs a zone of the lab that slots share: for what is its own, or for what it takes of
    others when it is done.
    """
    here = [each for each in slot.scenarios if each.runs_here]
    return any(not each.is_alone for each in here) or bool(here and movable(slots))


def _balanced(
    expected: Sequence[Expected], into: int, start_s: float, filled_at_least: int
) -> list[list[Expected]]:
    groups = list(_groups(expected))
    apart_s = max(map(_sum_s, _fill([[each] for each in expected], into)), default=0.0)
    while True:
        filled = _fill(groups, into)
        over_s = max(map(_sum_s, filled), default=0.0) - apart_s
        enough = sum(map(bool, filled)) >= filled_at_least
        dear = [each for each in groups if len(each) > 1 and (not enough or _saves_s(each, start_s) < over_s)]
        if not dear:
            return filled
        longest = max(dear, key=_sum_s)
        groups.remove(longest)
        groups += _halves(longest)


def _saves_s(group: Sequence[Expected], start_s: float) -> float:
    """What it takes less (s) that a group is in one slot, and not in two."""
    return start_s if _has_own_lab(group[0]) else STANDING_S


def _halves(group: Sequence[Expected]) -> list[list[Expected]]:
    """Those before which the same is put in stay together, where that leaves two."""
    alike: dict[str, list[Expected]] = {}
    for number, each in enumerate(group):
        alike.setdefault(each.standing or str(number), []).append(each)
    return _fill(alike.values() if len(alike) > 1 else [[each] for each in group], 2)


def _fill(groups: Iterable[Sequence[Expected]], into: int) -> list[list[Expected]]:
    """Longest first, each into what is done first."""
    filled: list[list[Expected]] = [[] for _ in range(into)]
    for group in sorted(groups, key=lambda each: -_sum_s(each)):
        min(filled, key=lambda one: (_sum_s(one), len(one))).extend(group)
    return filled


def _groups(expected: Iterable[Expected]) -> Iterator[Sequence[Expected]]:
    """What is not to be apart: those with labs of one size, those alone in one of the common size, of the
    others those before which the same is put in, and each of the rest by itself. Each lab more is a control
    plane that takes processors from all.
    """
    labs: dict[Size | None, list[Expected]] = {}
    stands: dict[str, list[Expected]] = {}
    for each in expected:
        if _has_own_lab(each):
            labs.setdefault(each.size, []).append(each)
        elif each.standing:
            stands.setdefault(each.standing, []).append(each)
        else:
            yield [each]
    yield from labs.values()
    yield from stands.values()


def _has_own_lab(each: Expected) -> bool:
    return each.is_alone or each.size is not None


def _turn(each: Expected) -> tuple[bool, Size, bool, str]:
    return each.size is None, each.size or Size(0, 0), not each.is_alone, each.standing


def _sum_s(scenarios: Iterable[Expected]) -> float:
    return sum(each.lasts_s for each in scenarios)


def critical(slots: Iterable[Slot]) -> Slot:
    """The slot that is done last; there is at least one."""
    return max(slots, key=lambda slot: slot.lasts_s)
