"""What a scenario asks for by its markers, and whether this run can give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code
from nodeproof.safety.guard import MOST_LOST

if TYPE_CHECKING:
    from nodeproof.session.options import Options


def declared(item: pytest.Item) -> tuple[str, ...]:
    """The claims that it is about."""
    marker = item.get_closest_marker("claims")
    return tuple(str(claim) for claim in marker.args) if marker else ()


def is_quick(item: pytest.Item) -> bool:
    """Whether a scenario waits for no fault: workers that begin with the others end together."""
    return not needs(item).faulted


def needs(item: pytest.Item) -> Needs:
    """What it needs of a lab. Raises Problem on what no lab could be asked for."""
    marker = item.get_closest_marker("needs")
    if marker is None:
        return Needs()
    if marker.args:
        raise Problem("@needs takes names with values only", item.nodeid, "say @needs(nodes=2)")
    return Needs.of(marker.kwargs, item.nodeid)


def check(item: pytest.Item) -> None:
    """Say beforehand that a scenario asks for what no lab has, or that its faults could count as a disruption
    of their zone. Raises Problem.
    """
    asked = needs(item)
    if asked.faulted > MOST_LOST and not asked.radius:
        raise Problem(
            f"faults on {asked.faulted} nodes may count as a disruption of their zone", item.nodeid,
            f'declare at most {MOST_LOST}, or radius="zone"',

        )  # fmt: skip


def lacks(item: pytest.Item, options: Options) -> tuple[Code, str] | None:
    """Why this scenario can't prove anything here: a code and a reason."""
    from nodeproof.labs.kinds import kind_named

    asked = needs(item)
    if asked.profile and asked.profile != options.profile:
        return "scaled", f"it proves something in profile {asked.profile} only, this is {options.profile}"
    missing = lacks_features(item, kind_named(options.kind).features)
    if missing:
        return "lab-lacks", f"a {options.kind} lab has no {missing}"
    if asked.zones > options.zones:
        return "lab-lacks", f"it needs {asked.zones} zones, the lab has {options.zones}: use --zones"
    if asked.faulted and not asked.radius and options.nodes < 2 * options.zones:
        return "lab-lacks", "a zone of one node would lose its only one: use --nodes"
    if asked.nodes > options.nodes:
        return "lab-lacks", f"it needs {asked.nodes} nodes, the lab has {options.nodes}: use --nodes"
    return None


def lacks_features(item: pytest.Item, has: frozenset[str]) -> str:
    """The features that the scenario needs and a lab has not, or nothing."""
    return ", ".join(sorted(needs(item).features - has))
