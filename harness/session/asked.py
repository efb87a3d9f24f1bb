"""What a scenario asks for by its markers, and whether this run can give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from harness.labs.kinds import CAPABILITIES
from harness.model.problem import Problem
from harness.model.verdict import Code
from harness.safety.guard import MOST_LOST

if TYPE_CHECKING:
    from harness.session.options import Options


def declared(item: pytest.Item) -> tuple[str, ...]:
    """The claims that it is about."""
    marker = item.get_closest_marker("claims")
    return tuple(str(claim) for claim in marker.args) if marker else ()


def is_quick(item: pytest.Item) -> bool:
    """Whether a scenario waits for no fault: workers that begin with the others end together."""
    return not needs(item).get("faulted")


def needs(item: pytest.Item) -> Mapping[str, Any]:
    """What it needs of a lab."""
    marker = item.get_closest_marker("needs")
    return marker.kwargs if marker else {}


def check_radius(item: pytest.Item) -> None:
    """Say beforehand that a scenario's faults could count as a disruption of their zone. Raises Problem."""
    faulted = int(needs(item).get("faulted", 0))
    if faulted > MOST_LOST:
        raise Problem(
            f"faults on {faulted} nodes may count as a disruption of their zone", item.nodeid,
            f"declare at most {MOST_LOST}",
        )  # fmt: skip


def lacks(item: pytest.Item, options: Options) -> tuple[Code, str] | None:
    """Why this scenario can't prove anything here: a code and a reason."""
    asked = needs(item)
    profile = asked.get("profile")
    if profile and profile != options.profile:
        return "scaled", f"it proves something in profile {profile} only, this is {options.profile}"
    missing = sorted(set(asked.get("capabilities", ())) - CAPABILITIES[options.kind])
    if missing:
        return "lab-lacks", f"a {options.kind} lab has no {', '.join(missing)}"
    if int(asked.get("zones", 1)) > options.zones:
        return (
            "lab-lacks",
            f"it needs {asked['zones']} zones, the lab has {options.zones}: use --zones",
        )
    if asked.get("faulted") and options.nodes < 2 * options.zones:
        return "lab-lacks", "a zone of one node would lose its only one: use --nodes"
    if int(asked.get("nodes", 2)) > options.nodes:
        return (
            "lab-lacks",
            f"it needs {asked['nodes']} nodes, the lab has {options.nodes}: use --nodes",
        )
    return None
