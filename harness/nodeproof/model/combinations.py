"""Combinations of a kind of fault with a state of the cluster in which a storm injects it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from nodeproof.model.schedule import COMPONENTS, KINDS, Combination, Step

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
