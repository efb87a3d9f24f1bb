"""Schedules of a storm: its faults in their order, as data.

A fault begins some time after a recorded moment, not at a time of the clock. A schedule therefore means the
same on a slower machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

Anchor = Literal["begun", "injected", "healed", "unknown"]
"""What a step waits for: the beginning of the storm; or of an earlier step the proven fault, its proven
healing, or Ready=Unknown of its node.
"""
FIRST: Anchor = "begun"
MAX_ACTIVE = 2
"""Largest number of nodes with a fault at once: more may disrupt their zone and slow down evictions."""
TAINT_KEY = "nodeproof.dev/storm"
COMPONENTS = ("kube-controller-manager", "kube-scheduler")
"""Components of the control plane that a storm may stop."""
CHANGES = ("", "scale", "roll", "evict", "delete")
"""What users do to the storm's workloads during a fault: nothing, or a change of one workload."""
HEALING_S = 4.0
"""Expected time (s) to heal a fault and prove it."""
Combination = tuple[str, str]
"""Name of a kind of fault, and a state of the cluster in which it is injected."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its word in scenarios, its arguments, its weight, and where it is injected."""

    word: str
    weight: int
    arguments: Mapping[str, Json] = field(default_factory=dict)
    place: Literal["node", "object", "component"] = "node"
    """A node takes one fault of its machine at a time; a fault of its Node object may come on top of it."""

    @property
    def name(self) -> str:
        """The word and what tells the kind from others of this word."""
        details = [str(value) for value in self.arguments.values() if value != TAINT_KEY]
        return " ".join([self.word, *details, *(["component"] if self.place == "component" else [])])


KINDS = (
    Kind("partition", 3),
    Kind("partition", 1, {"direction": "node-to-api"}),
    Kind("partition", 1, {"answer": "reject"}),
    Kind("power_off", 3),
    Kind("freeze", 2),
    Kind("link_down", 2),
    Kind("unit_down", 3),
    Kind("taint", 3, {"key": TAINT_KEY, "effect": "NoExecute"}, "object"),
    Kind("taint", 1, {"key": TAINT_KEY, "effect": "NoSchedule"}, "object"),
    Kind("power_off", 2, place="component"),
)


@dataclass(frozen=True)
class Step:
    """One fault of a schedule.

    Args:
        fault: its word in scenarios.
        target: number of the node among the nodes that may be affected, or the name of a component.
        anchor: what it waits for.
        of: number of the earlier step that the anchor is about; 0 for the beginning.
        delay_s: how long after the anchor it begins (s).
        duration_s: how long it stays (s).
        toleration_s: tolerationSeconds of a pod that is created on the node before; -1 for ever.
        arguments: further arguments of the fault.
        change: what happens to the storm's workloads during the fault, one of `CHANGES`.
    """

    fault: str
    target: int | str
    anchor: Anchor = FIRST
    of: int = 0
    delay_s: float = 0.0
    duration_s: float = 0.0
    toleration_s: int = -1
    arguments: Mapping[str, Json] = field(default_factory=dict)
    change: str = ""

    @property
    def kind(self) -> Kind | None:
        """The kind of fault; None if there is no such kind."""
        place = "component" if isinstance(self.target, str) else ("node", "object")
        return next(
            (
                kind
                for kind in KINDS
                if kind.word == self.fault and kind.place in place and kind.arguments == self.arguments
            ),
            None,
        )

    @property
    def is_on_machine(self) -> bool:
        """Whether it takes the machine of a node, not its Node object or a component."""
        return self.kind is not None and self.kind.place == "node"

    def excludes(self, step: Step) -> bool:
        """Return whether this step's fault ends before another: of the same component, machine or taint."""
        return self.target == step.target and self.is_on_machine == step.is_on_machine


@dataclass(frozen=True)
class Schedule:
    """The steps of a storm in their order, and what they were made of.

    Args:
        seed: any number.
        steps: the faults.
        coverage: what earlier storms met; the schedule prefers what they did not meet.
    """

    seed: int
    steps: tuple[Step, ...]
    coverage: tuple[Combination, ...] = ()

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in `schedule.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json, where: str) -> Schedule:
        """Read a stored schedule.

        Raises:
            Problem: It is invalid; the message names the step and the field.
        """
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
            raise _invalid("a schedule has a list of steps", where)
        steps = tuple(
            _step(entry, number, f"{where}: step {number}") for number, entry in enumerate(data["steps"])
        )
        if not isinstance(data.get("seed", 0), int):
            raise _invalid("the seed is a whole number", where)
        return cls(data.get("seed", 0), steps, coverage_from_json(data.get("coverage", []), where))

    def check_targets(self, nodes: int, where: str) -> None:
        """Require that all nodes exist, of so many. Raises Problem."""
        for number, step in enumerate(self.steps):
            if isinstance(step.target, int) and step.target >= nodes:
                raise _invalid(f"target {step.target}: there are {nodes} nodes", f"{where}: step {number}")


def coverage_from_json(data: Json, where: str) -> tuple[Combination, ...]:
    """Read stored combinations. Raises Problem."""
    if not isinstance(data, list) or not all(_is_combination(entry) for entry in data):
        raise _invalid("the coverage is a list of pairs: a kind of fault and a state", where)
    return tuple((fault, state) for fault, state in data)


def _is_combination(entry: Json) -> bool:
    return (
        isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(word, str) for word in entry)
    )


def _invalid(message: str, where: str) -> Problem:
    return Problem(message, where, "correct the file; a run has an example in its schedule.json")


def _step(entry: Json, number: int, where: str) -> Step:
    try:
        step = Step(**entry)
    except TypeError as error:
        raise _invalid(str(error).removeprefix("Step.__init__() "), where) from error
    if step.kind is None:
        words = ", ".join(sorted({kind.word for kind in KINDS}))
        raise _invalid(f"no fault {step.fault!r} with these arguments; use one of: {words}", where)
    for name in ("delay_s", "duration_s", "toleration_s"):
        value = getattr(step, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or value < (-1 if name[0] == "t" else 0)
        ):
            raise _invalid(f"{name} is {value!r}", where)
    if step.change not in CHANGES:
        raise _invalid(f"change is {step.change!r}; use one of: {', '.join(CHANGES[1:])}", where)
    if step.anchor not in get_args(Anchor):
        raise _invalid(f"anchor is {step.anchor!r}; use one of: {', '.join(get_args(Anchor))}", where)
    is_target = step.target in COMPONENTS if isinstance(step.target, str) else type(step.target) is int
    if not is_target or (isinstance(step.target, int) and step.target < 0):
        raise _invalid(f"target is {step.target!r}", where)
    if step.anchor != FIRST and not (type(step.of) is int and 0 <= step.of < number):
        raise _invalid(f"of is {step.of!r}: the anchor is of an earlier step", where)
    return step
