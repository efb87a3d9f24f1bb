"""Random schedules of a storm, which a seed determines, and what they can combine."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from nodeproof.model.schedule import (
    CHANGES,
    COMPONENTS,
    FIRST,
    HEALING_S,
    KINDS,
    MAX_ACTIVE,
    Anchor,
    Combination,
    Kind,
    Schedule,
    Step,
)
from nodeproof.model.slack import Span

NodeState = Literal["lost", "unknown", "tainted"]
"""State of a node: a fault cuts it off and it is not Unknown yet; it is Unknown; it has a taint of users."""
_QUIET = "quiet"


def of_node(state: NodeState, *, is_target: bool) -> str:
    """Return the state of the cluster if a node is in this state: the target of the fault or another."""
    return f"{'target' if is_target else 'other node'} {state}"


def stopped(component: str) -> str:
    """Return the state of the cluster in which a component of the control plane is stopped."""
    return f"{component} stopped"


def combine(step: Step, states: Collection[str]) -> frozenset[Combination]:
    """Return the combinations of a step with the states of the cluster; without any, it is quiet."""
    name = step.kind.name if step.kind else ""
    return frozenset((name, state) for state in states or (_QUIET,)) & POSSIBLE


def _possible() -> Iterator[Combination]:
    states: list[NodeState] = ["lost", "unknown", "tainted"]
    own: dict[str, list[NodeState]] = {"node": ["tainted"], "object": ["lost", "unknown"]}
    for kind in KINDS:
        yield kind.name, _QUIET
        yield from ((kind.name, stopped(component)) for component in COMPONENTS)
        yield from ((kind.name, of_node(state, is_target=False)) for state in states)
        yield from ((kind.name, of_node(state, is_target=True)) for state in own.get(kind.place, ()))


POSSIBLE = frozenset(_possible())
"""Combinations that a schedule can aim at.

A fault ends an earlier one of the same machine, component or taint.
"""


# Schedules


_CANDIDATES = 16
"""Number of random steps of which one is taken, if there is coverage."""
_NEXT_TO = 0.5
"""Share of the steps that begin while another fault is active on purpose."""


def generate(
    seed: int,
    duration_s: float,
    nodes: int,
    grace_s: float,
    toleration_s: int,
    coverage: Collection[Combination] = (),
) -> Schedule:
    """Return a random schedule; the same arguments give the same one.

    Durations are around what matters: shorter than the grace period, a little longer, and long enough for
    evictions. Quiet phases in between let everything recover.

    Args:
        seed: any number.
        duration_s: about how long the storm takes (s).
        nodes: number of nodes that may be affected.
        grace_s: node monitor grace period (s).
        toleration_s: tolerationSeconds of the storm's pods (s).
        coverage: what earlier storms met; of several random steps, the one is taken that is expected to meet
            the most combinations that neither they nor the steps before met.
    """
    chance, changes = random.Random(seed), random.Random(f"changes {seed}")  # noqa: S311
    steps: list[Step] = []
    expected, met = Expected(grace_s), set(coverage)
    while True:
        before = steps[-1] if steps else None
        candidates = [
            _step(chance, len(steps), before, nodes, grace_s, toleration_s)
            for _number in range(_CANDIDATES if coverage else 1)
        ]
        # The first one decides whether a pause precedes the step: everything must recover now and then.
        alike = [candidate for candidate in candidates if candidate.anchor == candidates[0].anchor]
        step = max(alike, key=lambda candidate: len(expected.combinations(candidate) - met))
        met |= expected.combinations(step)
        if expected.add(step) > duration_s and steps:
            return Schedule(seed, tuple(steps), tuple(sorted(coverage)))
        steps.append(replace(step, change=changes.choice(CHANGES)))


def expected_end_s(steps: Collection[Step], grace_s: float) -> float:
    """Return when a storm with these steps is expected to end (s)."""
    expected = Expected(grace_s)
    return max((expected.add(step) for step in steps), default=0.0)


class Expected:
    """When the steps of a schedule are expected to begin and to end (s), and what they meet.

    No step may begin before the one that was added before it.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._spans: list[Span] = []
        self._active: list[tuple[Step, Span]] = []
        self._ended_t = 0.0

    def add(self, step: Step) -> float:
        """Add a step, and return when the storm is expected to end."""
        start_t = self._start_t(step)
        span = Span(start_t, start_t + step.duration_s)
        self._spans.append(span)
        self._active = [*self._beside(step), (step, span)]
        self._ended_t = max(self._ended_t, span.until_t + HEALING_S)
        return self._ended_t

    def _start_t(self, step: Step) -> float:
        if step.anchor == FIRST:
            return step.delay_s
        span = self._spans[step.of]
        healed_t, unknown_t = span.until_t + HEALING_S, span.since_t + self._grace_s
        return {"healed": healed_t, "unknown": unknown_t}.get(step.anchor, span.since_t) + step.delay_s

    def _beside(self, step: Step) -> list[tuple[Step, Span]]:
        """Return the faults that stay when a step begins, which heals the oldest of too many nodes."""
        start_t = self._start_t(step)
        active = [
            (other, span)
            for other, span in self._active
            if start_t < span.until_t and not other.excludes(step)
        ]
        others = [other.target for other, _span in active if isinstance(other.target, int)]
        others = [node for node in others if node != step.target]
        while isinstance(step.target, int) and len({*others}) >= MAX_ACTIVE:
            oldest = others.pop(0)
            active.remove(next(entry for entry in active if entry[0].target == oldest))
        return active

    def combinations(self, step: Step) -> frozenset[Combination]:
        """Return what a step is expected to meet after those that were added."""
        start_t = self._start_t(step)
        return combine(
            step,
            {self._state(active, step, start_t - span.since_t) for active, span in self._beside(step)},
        )

    def _state(self, active: Step, step: Step, lasted_s: float) -> str:
        if isinstance(active.target, str):
            return stopped(active.target)
        is_target = active.target == step.target
        if not active.is_on_machine:
            return of_node("tainted", is_target=is_target)
        return of_node("unknown" if lasted_s > self._grace_s else "lost", is_target=is_target)


def _step(
    chance: random.Random, number: int, before: Step | None, nodes: int, grace_s: float, toleration_s: int
) -> Step:
    """Return a random step to follow another."""
    kind = chance.choices(KINDS, [kind.weight for kind in KINDS])[0]
    anchor, delay_s = _anchor(chance, before, grace_s)
    duration_s = round(chance.uniform(*_duration(chance, grace_s, toleration_s)), 1)
    target = _target(chance, kind, before, nodes, is_beside=anchor in ("injected", "unknown"))
    if kind.place == "component":
        duration_s = round(chance.uniform(0.5, grace_s / 2), 1)
    tolerated_s = chance.choice((-1, 0, toleration_s, toleration_s))
    of = max(0, number - 1)
    return Step(kind.word, target, anchor, of, delay_s, duration_s, tolerated_s, dict(kind.arguments))


def _anchor(chance: random.Random, before: Step | None, grace_s: float) -> tuple[Anchor, float]:
    """Return what a step waits for, and for how long after it (s)."""
    if before is None:
        return FIRST, 0.0
    if chance.random() >= _NEXT_TO:
        # One in four pauses is long enough for everything to recover.
        return "healed", round(chance.choice((0.5, 2.0, 5.0, grace_s)), 1)
    if before.is_on_machine and before.duration_s > grace_s + 2.0 and chance.random() < 0.6:
        return "unknown", round(chance.uniform(0.0, 4.0), 1)
    return "injected", round(chance.uniform(0.0, min(4.0, before.duration_s / 2)), 1)


def _duration(chance: random.Random, grace_s: float, toleration_s: int) -> Sequence[float]:
    """Return the range of a fault's duration (s)."""
    return chance.choice(
        (
            (1.0, grace_s / 2),
            (grace_s + 1.0, grace_s + toleration_s / 2),
            (grace_s + toleration_s + 2.0, grace_s + toleration_s + 6.0),
        )
    )


def _target(chance: random.Random, kind: Kind, before: Step | None, nodes: int, is_beside: bool) -> int | str:
    """Return a target; a step beside another takes another machine, but may taint the same node."""
    if kind.place == "component":
        return chance.choice(COMPONENTS)
    choices = list(range(nodes))
    if (
        is_beside
        and kind.place == "object"
        and before is not None
        and before.is_on_machine
        and chance.random() < 0.7
    ):
        return before.target
    if is_beside and before is not None and before.target in choices:
        choices.remove(int(before.target))
    return chance.choice(choices)
