"""Requirements of a scenario for its lab: a closed set of words, so that misspelled ones are rejected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from nodeproof.model.formula import SYMBOLS, Term
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

FEATURES: Mapping[str, str] = {
    "freeze": "a node, including its clock, can be paused and resumed",
    "link": "the cable of a node's `data` network can be pulled",
    "power": "a node's power can be cut and restored",
    "proxy": "a kube-proxy can run on a node",
    "real-pods": "containers run, so the effects of a pod's program can be observed",
    "reset": "a node can be reset at once, without a shutdown",
    "shapes": "a machine that joins can have NUMA nodes and its own kernel arguments",
    "swap": "a node can have its own swap space",
    "systemd": "systemd runs a node's services, including the kubelet, and can shut the node down",
    "volumes": "nodeproof's CSI driver can attach volumes to nodes",
}
"""Features that only some labs have."""
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Components of the control plane that run in every lab."""
CLOUD: Final = "cloud-controller-manager"
"""Component of the control plane that runs as long as a fault needs it."""
ATTACHER: Final = "external-attacher"
"""Runs, with its CSI driver, as long as a fault needs it."""
_REPLICA = re.compile(rf"({'|'.join(COMPONENTS)}|control-plane)-[1-9]")
"""The name of one of several control planes, or of one of its components."""
Radius = Literal["", "zone", "cluster"]
RADII: Sequence[Radius] = get_args(Radius)
Isolation = Literal["zone", "cluster"]
ISOLATIONS: Sequence[Isolation] = get_args(Isolation)
MOST_IN_A_ZONE = 6
"""Largest number of nodes of a scenario that shares its lab with others."""
FAULTED_S = "2G + 15"
"""Expected duration (s) of a scenario with faults that declares none, as a formula."""
_MARKER = "@needs"


@dataclass(frozen=True)
class Needs:
    """The arguments of `@needs(...)`: the lab's size, the number of faulted nodes, and required features.

    `nodes=(20, 3)` requests zones of different sizes (stored in `spread`), `faulted=(11, 2)` the number of
    faulted nodes in each zone (stored in `faulted_in`). `profile` is the only one in which the scenario
    proves anything; empty means any. `components` of the control plane may be faulted as well. `radius` is
    the largest effect of faults: by default at most two nodes and no whole zone, `zone` all but one zone,
    `cluster` everything. `duration_s` is the expected duration (s), as a formula of
    `nodeproof.model.formula` (`2G + 10`: G is the grace period), used by plans until a run was timed.
    `isolation` is the part of the lab for its exclusive use: the nodes of a `zone`, while others run in other
    zones, or the whole `cluster`. `control_planes` is how many the lab has at least.
    """

    nodes: int = 2
    faulted: int = 0
    zones: int = 1
    features: frozenset[str] = frozenset()
    profile: str = ""
    components: tuple[str, ...] = ()
    radius: Radius = ""
    duration_s: str = ""
    isolation: Isolation = "zone"
    control_planes: int = 1
    spread: tuple[int, ...] = ()
    faulted_in: tuple[int, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Whether it needs a lab alone: its faults affect other zones, or it needs many nodes."""
        return bool(self.isolation == "cluster" or self.components or self.radius or self.is_large)

    @property
    def is_large(self) -> bool:
        """Whether it needs a lab of its own size."""
        return self.nodes > MOST_IN_A_ZONE or self.zones > 1

    @classmethod
    def of(cls, arguments: Mapping[str, Json], where: str) -> Needs:
        """Read the arguments of a marker.

        Raises:
            Problem: A word, a feature or a value is unknown.
        """
        words = {field.name: field for field in fields(cls) if field.name not in ("spread", "faulted_in")}
        for word in arguments:
            if word not in words:
                raise Problem(f"{_MARKER} has no argument {word!r}", where, f"use one of: {', '.join(words)}")
        spread = _spread("nodes", arguments.get("nodes"), where)
        faulted_in = _spread("faulted", arguments.get("faulted"), where)
        if spread:
            arguments = {"zones": len(spread), **arguments, "nodes": sum(spread)}
        if faulted_in:
            arguments = {**arguments, "faulted": sum(faulted_in)}
        for word in ("nodes", "faulted", "zones", "control_planes"):
            _check_number(word, arguments.get(word, words[word].default), where)
        if not isinstance(arguments.get("profile", ""), str):
            raise Problem(f"{_MARKER}: profile is {arguments['profile']!r}", where, "name one profile")
        for word, choices in (("radius", RADII), ("isolation", ISOLATIONS)):
            if arguments.get(word, words[word].default) not in choices:
                next_step = f"use one of: {', '.join(filter(None, choices))}"
                raise Problem(f"{_MARKER}: {word} is {arguments[word]!r}", where, next_step)
        _check_formula(arguments.get("duration_s", ""), where)
        components = _named(
            arguments.get("components", ()),
            "component",
            (*COMPONENTS, CLOUD, ATTACHER, "control-plane"),
            where,
        )
        features = _named(arguments.get("features", ()), "feature", FEATURES, where)
        several = {"features": features, "components": tuple(sorted(components))}
        needs = cls(**{**arguments, **several, "spread": spread, "faulted_in": faulted_in})
        if (spread and needs.zones != len(spread)) or len(faulted_in) > needs.zones:
            raise Problem(
                f"{_MARKER}: zones is {needs.zones}, but nodes or faulted lists another number", where,
                "give one number for each zone, starting with the first zone",
            )  # fmt: skip
        return needs


def role_of(component: str) -> str:
    """Return the component that a replica belongs to: `etcd` for `etcd-2`; any other name as it is."""
    replica = _REPLICA.fullmatch(component)
    return replica[1] if replica else component


def _spread(word: str, value: Json, where: str) -> tuple[int, ...]:
    """Return the numbers of the zones, if several are given."""
    if not isinstance(value, tuple):
        return ()
    for number in value:
        _check_number(word, number, where)
    return value


def _check_number(word: str, value: Json, where: str) -> None:
    minimum = 0 if word == "faulted" else 1
    if type(value) is not int or value < minimum:
        raise Problem(f"{_MARKER}: {word} is {value!r}", where, f"use a whole number of at least {minimum}")


def _check_formula(value: Json, where: str) -> None:
    try:
        unknown = Term.of(value).symbols - SYMBOLS.keys() if value else frozenset()
    except (TypeError, ValueError) as error:
        next_step = "use seconds, such as '2G + 10'"
        raise Problem(f"{_MARKER}: duration_s is {value!r}", where, next_step) from error
    if unknown:
        choices = f"use one of: {', '.join(SYMBOLS)}"
        raise Problem(f"{_MARKER}: duration_s is {value!r}: no symbol {min(unknown)}", where, choices)


def _named(names: Json, what: str, valid_names: Iterable[str], where: str) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        example = f'use a sequence, such as {what}s=("{min(valid_names)}",)'
        raise Problem(f"{_MARKER}: {what}s is {names!r}, not a sequence", where, example)
    required = list(names)
    for name in required:
        if not isinstance(name, str) or name not in valid_names:
            raise Problem(f"unknown {what} {name!r}", where, f"use one of: {', '.join(sorted(valid_names))}")
    return frozenset(required)
