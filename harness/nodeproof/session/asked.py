"""What a scenario asks for by its markers, and whether this run can give it."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code
from nodeproof.safety.guard import MOST_LOST

if TYPE_CHECKING:
    from nodeproof.faults import Fault
    from nodeproof.session.options import Options

Make = Callable[[str], "Fault"]
"""Makes a new fault of a node."""
_OF_ALL = ("fault", "id", "node")
"""What every fault's data has."""


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


def standing(item: pytest.Item) -> tuple[Make, ...]:
    """What is to stand on its target before it begins, in the order of its lines."""
    marks = reversed(list(item.iter_markers("standing")))
    return tuple(_make(mark.args[0], mark.args[1:], mark.kwargs) for mark in marks)


def _make(word: Callable[..., Fault], args: Sequence[Any], settings: Mapping[str, Any]) -> Make:
    return lambda node: word(node, *args, **settings)


def key(makes: Sequence[Make]) -> str:
    """The same for those who ask for the same; empty for nothing. Raises TypeError, ValueError."""
    told = [{**make("").to_json(), "id": ""} for make in makes]
    return json.dumps(told, sort_keys=True) if told else ""


def described(key: str) -> Iterator[str]:
    """For people: each fault of a key, and what it is told beside its node."""
    for told in json.loads(key):
        settings = [f"{name}={json.dumps(value)}" for name, value in told.items() if name not in _OF_ALL]
        yield " ".join([told["fault"], *settings])


def check(item: pytest.Item) -> None:
    """Say beforehand that a scenario asks for what no lab has, that its faults could count as a disruption of
    their zone, or that what is to stand is no fault of its target. Raises Problem.
    """
    asked = needs(item)
    try:
        for mark in item.iter_markers("standing"):
            _check_word(mark.args[0])
        stands = key(standing(item))
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise Problem(f"@standing: {error}", item.nodeid, "say @standing(swap, 256)") from error
    if stands and not asked.faulted:
        raise Problem("@standing harms a node", item.nodeid, "declare it: @needs(faulted=1)")
    if asked.faulted > MOST_LOST and not asked.radius:
        raise Problem(
            f"faults on {asked.faulted} nodes may count as a disruption of their zone", item.nodeid,
            f'declare at most {MOST_LOST}, or radius="zone"',

        )  # fmt: skip


def _check_word(word: Callable[..., Fault]) -> None:
    """Raises TypeError, ValueError for what makes no fault of the one node that it is given first."""
    if word.__module__ != "nodeproof.scenario.faults":
        raise TypeError(f"{word.__name__} is no word for a fault")
    if next(iter(inspect.signature(word).parameters), "") != "node":
        raise TypeError(f"{word.__name__} is no fault of one node")


def lacks(item: pytest.Item, options: Options) -> tuple[Code, str] | None:
    """Why this scenario can't prove anything here: a code and a reason."""
    from nodeproof.labs.kinds import kind_named

    asked = needs(item)
    if asked.profile and asked.profile != options.profile:
        return "scaled", f"it proves something in profile {asked.profile} only, this is {options.profile}"
    missing = lacks_features(item, kind_named(options.kind).features)
    if missing:
        return "lab-lacks", f"a {options.kind} lab has no {missing}"
    if options.zone and asked.is_alone:
        return "lab-lacks", "it needs a lab to itself: leave the zone out, and -n"
    lab, most = size(asked, options), kind_named(options.kind).limits.nodes
    if lab.nodes > most:
        return "lab-lacks", f"it needs {lab.nodes} nodes, a {options.kind} lab has at most {most}"
    if asked.spread != lab.spread:
        told = ", ".join(str(nodes) for nodes in asked.spread)
        return "lab-lacks", f"it needs zones of {told} nodes: leave out --nodes, --zones and the lab's name"
    if asked.zones > lab.zones:
        return "lab-lacks", f"it needs {asked.zones} zones, the lab has {lab.zones}: use --zones"
    if asked.faulted and not asked.radius and lab.nodes < 2 * lab.zones:
        return "lab-lacks", "a zone of one node would lose its only one: use --nodes"
    if asked.nodes > lab.nodes:
        return "lab-lacks", f"it needs {asked.nodes} nodes, the lab has {lab.nodes}: use --nodes"
    return None


def is_large(needs: Needs, options: Options) -> bool:
    """Whether it needs a lab of a size of its own, of such a kind."""
    from nodeproof.labs.kinds import kind_named

    return needs.zones > 1 or needs.nodes > kind_named(options.kind).limits.common_nodes


def size(needs: Needs, options: Options) -> Size:
    """Of the lab that a scenario needs, unless somebody said how large labs are to be."""
    if needs.spread and (needs.spread == options.spread or not (options.nodes or options.zones)):
        return Size(needs.nodes, needs.zones, needs.spread)
    zones = options.zones or needs.zones
    return Size(options.nodes or max(needs.nodes, 2 * zones), zones)


def common_size(all_needs: Iterable[Needs], options: Options) -> Size:
    """Of the labs of all that need no lab of a size of their own: what is enough for each of them."""
    sizes = [size(each, options) for each in all_needs if not is_large(each, options) or options.nodes]
    zones = options.zones or 1
    return Size(max((each.nodes for each in sizes), default=2 * zones), zones)


def needs_machine(item: pytest.Item) -> bool:
    """Whether it is a scenario that needs what hollow nodes have not; of one that asks for what no lab has,
    `check` tells.
    """
    if not declared(item):
        return False
    from nodeproof.labs.kinds import KINDS

    of_hollow = frozenset[str]().union(*(kind.features for kind in KINDS.values() if kind.is_hollow))
    with contextlib.suppress(Problem):
        return bool(lacks_features(item, of_hollow))
    return False


def lacks_features(item: pytest.Item, has: frozenset[str]) -> str:
    """The features that the scenario needs and a lab has not, or nothing."""
    return ", ".join(sorted(needs(item).features - has))
