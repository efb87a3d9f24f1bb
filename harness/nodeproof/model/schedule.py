"""Schedules of a storm: faults in random order, as data that a seed determines.

A fault begins some time after a recorded moment, not at a time of the clock. A schedule therefore means the
same on a slower machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from nodeproof.model.problem import Problem

Json = Any
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
_HEALING_S = 4.0
"""Expected time (s) to heal a fault and prove it."""
_NEXT_TO = 0.5
"""Share of the steps that begin while another fault is active on purpose."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its word in scenarios, its arguments, its weight, and where it is injected."""

    word: str
    weight: int
    arguments: Mapping[str, Json] = field(default_factory=dict)
    place: Literal["node", "object", "component"] = "node"
    """A node takes one fault of its machine at a time; a fault of its Node object may come on top of it."""


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


@dataclass(frozen=True)
class Schedule:
    """The steps of a storm in their order, and what they were made of."""

    seed: int
    steps: tuple[Step, ...]

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
        return cls(data.get("seed", 0), steps)

    def check_targets(self, nodes: int, where: str) -> None:
        """Require that all nodes exist, of so many. Raises Problem."""
        for number, step in enumerate(self.steps):
            if isinstance(step.target, int) and step.target >= nodes:
                raise _invalid(f"target {step.target}: there are {nodes} nodes", f"{where}: step {number}")


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


def generate(seed: int, duration_s: float, nodes: int, grace_s: float, toleration_s: int) -> Schedule:
    """Return a random schedule; the same arguments give the same one.

    Durations are around what matters: shorter than the grace period, a little longer, and long enough for
    evictions. Quiet phases in between let everything recover.

    Args:
        seed: any number.
        duration_s: about how long the storm takes (s).
        nodes: number of nodes that may be affected.
        grace_s: node monitor grace period (s).
        toleration_s: tolerationSeconds of the storm's pods (s).
    """
    chance, changes = random.Random(seed), random.Random(f"changes {seed}")  # noqa: S311
    steps = _steps(chance, nodes, grace_s, toleration_s)
    taken: list[Step] = []
    expected = _Expected(grace_s)
    for step in steps:
        ended_t = expected.add(step)
        if ended_t > duration_s and taken:
            break
        taken.append(replace(step, change=changes.choice(CHANGES)))
    return Schedule(seed, tuple(taken))


class _Expected:
    """When the steps of a schedule are expected to begin and to end (s)."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._spans: list[tuple[float, float]] = []

    def add(self, step: Step) -> float:
        """Add a step, and return when the storm is expected to end."""
        begun_t, ended_t = self._spans[step.of] if step.anchor != FIRST else (0.0, 0.0)
        anchor_t = {"healed": ended_t, "unknown": begun_t + self._grace_s}.get(step.anchor, begun_t)
        start_t = anchor_t + step.delay_s
        self._spans.append((start_t, start_t + step.duration_s + _HEALING_S))
        return max(end_t for _start_t, end_t in self._spans)


def _steps(chance: random.Random, nodes: int, grace_s: float, toleration_s: int) -> Iterator[Step]:
    """Yield steps without end."""
    number, before = 0, None
    while True:
        kind = chance.choices(KINDS, [kind.weight for kind in KINDS])[0]
        anchor, delay_s = _anchor(chance, before, grace_s)
        duration_s = round(chance.uniform(*_duration(chance, grace_s, toleration_s)), 1)
        target = _target(chance, kind, before, nodes, is_beside=anchor in ("injected", "unknown"))
        if kind.place == "component":
            duration_s = round(chance.uniform(0.5, grace_s / 2), 1)
        tolerated_s = chance.choice((-1, 0, toleration_s, toleration_s))
        of = max(0, number - 1)
        before = Step(kind.word, target, anchor, of, delay_s, duration_s, tolerated_s, dict(kind.arguments))
        yield before
        number += 1


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
