"""What a scenario needs of its lab: a closed list of words, so that none can be misspelt unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from nodeproof.model.problem import Problem
from nodeproof.model.symbols import SYMBOLS
from nodeproof.model.term import Term

Json = Any
FEATURES: Mapping[str, str] = {
    "freeze": "a node can stand still and go on, its clock with it",
    "link": "the cable of a node's `data` network can be pulled",
    "power": "a node's power can be cut and given back",
    "proxy": "a kube-proxy can be run on a node",
    "real-pods": "containers run: what a pod's program does can be seen",
    "reset": "a node can be reset at once, without a shutdown",
    "shapes": "a machine that joins can have NUMA nodes, and arguments of its own for its kernel",
    "swap": "a node can have swap space of its own",
    "systemd": "a node's services, its kubelet too, are run by systemd, which can shut it down",
    "volumes": "volumes can be attached to its nodes, by a CSI driver of nodeproof's",
}
"""All that a lab may have and another may not."""
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Of a lab's control plane, that run in every lab."""
CLOUD: Final = "cloud-controller-manager"
"""Of a lab's control plane, that runs as long as a fault wants it."""
ATTACHER: Final = "external-attacher"
"""Runs, with the CSI driver that it speaks to, as long as a fault wants it."""
Radius = Literal["", "zone", "cluster"]
RADII: Sequence[Radius] = ("", "zone", "cluster")
Isolation = Literal["zone", "cluster"]
ISOLATIONS: Sequence[Isolation] = ("zone", "cluster")
MOST_IN_A_ZONE = 6
"""Nodes, of a lab that several scenarios share: one that needs more has a lab of its own."""
_MARKER = "@needs"


@dataclass(frozen=True)
class Needs:
    """`@needs(...)`: the lab's size, how many nodes faults may hit, and what it must have.

    `nodes=(20, 3)` is a lab whose zones are not of one size, told in `spread`; `faulted=(11, 2)` how many
    nodes of each zone, told in `faulted_in`.
    `profile` is the only one in which the scenario proves anything; empty is any. `components` of the control
    plane may be hit as well. `radius` is how much faults may take away at once: nothing told is at most two
    nodes and no whole zone, `zone` all but one zone, `cluster` everything. `lasts` is how long the scenario
    takes (s), as a formula of `nodeproof.model.symbols`: a plan goes by it until a run was timed. `isolation`
    is what it has for itself: the nodes of a `zone`, while others run in other zones of its lab, or the whole
    `cluster`.
    """

    nodes: int = 2
    faulted: int = 0
    zones: int = 1
    features: frozenset[str] = frozenset()
    profile: str = ""
    components: tuple[str, ...] = ()
    radius: Radius = ""
    lasts: str = ""
    isolation: Isolation = "zone"
    spread: tuple[int, ...] = ()
    faulted_in: tuple[int, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Whether no other scenario may run in its lab: one that harms more than nodes of its zone harms all
        the others, too, and one that needs many nodes does not need as many for each of them.
        """
        return bool(self.isolation == "cluster" or self.components or self.radius or self.is_large)

    @property
    def is_large(self) -> bool:
        """Whether it needs a lab of a size of its own."""
        return self.nodes > MOST_IN_A_ZONE or self.zones > 1

    @classmethod
    def of(cls, asked: Mapping[str, Json], where: str) -> Needs:
        """What a marker says. Raises Problem on a word, a feature or a value that there is none of."""
        words = {each.name: each for each in fields(cls) if each.name not in ("spread", "faulted_in")}
        for word in asked:
            if word not in words:
                raise Problem(f"{_MARKER} knows no {word!r}", where, f"it knows: {', '.join(words)}")
        spread = _spread("nodes", asked.get("nodes"), where)
        faulted_in = _spread("faulted", asked.get("faulted"), where)
        if spread:
            asked = {"zones": len(spread), **asked, "nodes": sum(spread)}
        if faulted_in:
            asked = {**asked, "faulted": sum(faulted_in)}
        for word in ("nodes", "faulted", "zones"):
            _check_number(word, asked.get(word, words[word].default), where)
        if not isinstance(asked.get("profile", ""), str):
            raise Problem(f"{_MARKER}: profile is {asked['profile']!r}", where, "name one profile")
        if asked.get("radius", "") not in RADII:
            said = f"there are: {', '.join(filter(None, RADII))}"
            raise Problem(f"{_MARKER}: radius is {asked['radius']!r}", where, said)
        if asked.get("isolation", "zone") not in ISOLATIONS:
            said = f"there are: {', '.join(ISOLATIONS)}"
            raise Problem(f"{_MARKER}: isolation is {asked['isolation']!r}", where, said)
        _check_formula(asked.get("lasts", ""), where)
        components = _named(asked.get("components", ()), "component", (*COMPONENTS, CLOUD, ATTACHER), where)
        features = _named(asked.get("features", ()), "feature", FEATURES, where)
        several = {"features": features, "components": tuple(sorted(components))}
        made = cls(**{**asked, **several, "spread": spread, "faulted_in": faulted_in})
        if (spread and made.zones != len(spread)) or len(faulted_in) > made.zones:
            raise Problem(
                f"{_MARKER}: {made.zones} zones, and other numbers of zones besides", where,
                "give a number for each zone, the first zone's first",
            )  # fmt: skip
        return made


def _spread(word: str, value: Json, where: str) -> tuple[int, ...]:
    """A number for each zone, where several are given."""
    if not isinstance(value, tuple):
        return ()
    for number in value:
        _check_number(word, number, where)
    return value


def _check_number(word: str, value: Json, where: str) -> None:
    least = 0 if word == "faulted" else 1
    if type(value) is not int or value < least:
        raise Problem(f"{_MARKER}: {word} is {value!r}", where, f"give a whole number from {least} on")


def _check_formula(value: Json, where: str) -> None:
    try:
        unknown = Term.of(value).symbols - SYMBOLS.keys() if value else frozenset()
    except (TypeError, ValueError) as error:
        raise Problem(f"{_MARKER}: lasts is {value!r}", where, "give seconds, such as '2G + 10'") from error
    if unknown:
        said = f"there are: {', '.join(SYMBOLS)}"
        raise Problem(f"{_MARKER}: lasts is {value!r}: no symbol {min(unknown)}", where, said)


def _named(asked: Json, what: str, known: Iterable[str], where: str) -> frozenset[str]:
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        said = f'give several: {what}s=("{min(known)}",)'
        raise Problem(f"{_MARKER}: {what}s is {asked!r}", where, said)
    named = list(asked)
    for each in named:
        if not isinstance(each, str) or each not in known:
            raise Problem(f"there is no {what} {each!r}", where, f"there are: {', '.join(sorted(known))}")
    return frozenset(named)
