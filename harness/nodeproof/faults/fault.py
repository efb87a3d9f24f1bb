"""The base of all faults: a disruption and its exact inverse."""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Literal

from nodeproof.machines.machine import CommandResult, Machine, MachineError, Shell, checked
from nodeproof.model.pattern import Json

COMMAND_TIMEOUT_S = 10.0
Place = Literal["node", "component", "plane", "control-plane"]
FAULTS: dict[str, type[Fault]] = {}
"""Every fault that a ledger may contain, by its name there."""
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""A kernel's initial PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).

A machine in this namespace does not share its kernel.
"""


@dataclass(frozen=True)
class Fault(ABC):
    """A disruption of a cluster and its exact inverse.

    It need not be a failure: a setting, a static pod or a label is a change that is undone like one.

    A fault is constructed from data alone, so that another process can heal it later. Every method is
    idempotent, and `heal` works even if `inject` never ran. `inject` and `heal` act; `is_injected` and
    `is_healed` observe from outside and never read what `inject` wrote.

    A subclass with a `name` is registered in `FAULTS`. Its fields are the constructor's arguments and are
    stored in the ledger, each under its name or the `key` in its metadata.
    """

    name: ClassVar[str]
    """The name in ledgers and recordings."""
    word: ClassVar[str]
    """The name in scenarios: that of the class in snake case."""
    places: ClassVar[Sequence[Place]] = ("node",)
    """The kinds of machine that the fault can be injected on.

    A component's commands run in the lab's outer namespaces, where a service manager may be the host's. A
    `plane` is one of several control planes, with all its components.
    """
    ends_components: ClassVar[bool] = False
    """Whether components on the target may end as part of the fault."""
    ends_with_power: ClassVar[bool] = False
    """Whether nothing of the fault is left on a machine that is off."""
    timeout_s: ClassVar[float] = COMMAND_TIMEOUT_S
    """The timeout of the commands that inject and heal it."""

    node: str
    """The machine that it is injected on: a node, a component of the control plane, or all of it."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8], kw_only=True)
    """The id, unique in its lab; whatever the fault leaves on a machine is named after it."""

    def __init_subclass__(cls) -> None:
        cls.word = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        name = vars(cls).get("name")
        if name in FAULTS:
            raise ValueError(f"{cls.__qualname__}: {FAULTS[name].__qualname__} has the name {name!r}, too")
        if name:
            FAULTS[name] = cls

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> Fault:
        """Construct the fault of a ledger entry.

        Raises:
            KeyError: There is no such fault, or it has no such argument.
            TypeError: An argument is missing.
        """
        fault = FAULTS[data["fault"]]
        constants = {"fault", *(entry.name for entry in fields(fault) if not entry.init)}
        names = {_key(entry): entry.name for entry in fields(fault)}
        return fault(**{names[key]: value for key, value in data.items() if key not in constants})

    @classmethod
    def leftovers_on(cls, machine: Shell) -> Sequence[Fault]:
        """Return the faults of this class that a machine shows by the names of leftovers.

        Raises:
            MachineError: The machine did not answer.
        """
        del machine
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """Return the constructor's arguments, as stored in the ledger."""
        arguments = {_key(entry): getattr(self, entry.name) for entry in fields(self)}
        copy: Mapping[str, Json] = json.loads(json.dumps({"fault": self.name, **arguments}, default=dict))
        return copy

    @property
    def affected_nodes(self) -> Sequence[str]:
        """The nodes that it may take down, all at once."""
        return (self.node,)

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that heals it on the machine itself; empty if only something outside of it can."""
        return ()

    def available(self, machine: Machine) -> str:
        """Return why this machine cannot have the fault, or an empty string. Raises MachineError."""
        del machine
        return ""

    @abstractmethod
    def inject(self, machine: Shell) -> None:
        """Inject the fault. Raises MachineError."""

    def heal(self, machine: Shell) -> None:
        """Undo the fault, by `self_heal_command` if a class has no other way. Raises MachineError."""
        if not self.ends_with_power or machine.is_powered():
            self.run(machine, self.self_heal_command)

    @abstractmethod
    def is_injected(self, machine: Machine) -> bool:
        """Return whether the fault is visible from outside. Raises MachineError."""

    @abstractmethod
    def is_healed(self, machine: Machine) -> bool:
        """Return whether the machine looks as before the fault. Raises MachineError."""

    def run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        """Run a command and return its output. Raises MachineError if it fails."""
        completed = machine.run(argv, timeout_s=self.timeout_s, stdin=stdin)
        targets = ", ".join(self.affected_nodes) or self.node
        return checked(completed, f"{self.name} on {targets}: {argv[0]}")


def _key(entry: Field[Any]) -> str:
    return str(entry.metadata.get("key", entry.name))


def ids_in(listed: str, pattern: str) -> list[str]:
    """Return the ids of faults in lines that match a pattern, which has `ID` for one."""
    return re.findall(f"^{pattern.replace('ID', '([0-9a-f]{8})')}", listed, re.MULTILINE)


_NO_ANSWER = 124
"""Lowest exit status of a command that timed out (timeout(1)), could not run, or was ended by a signal."""


def output_of(machine: Shell, *argv: str) -> str:
    """Run a command and return its output, whatever its status. Raises MachineError."""
    return machine.run(argv, timeout_s=COMMAND_TIMEOUT_S).stdout


def succeeds(machine: Shell, *argv: str) -> bool:
    """Run a command and return whether it succeeds. Raises MachineError as `answer_of` does."""
    return answer_of(machine, *argv).status == 0


def answer_of(machine: Shell, *argv: str) -> CommandResult:
    """Run a command that answers by its exit status.

    Raises:
        MachineError: There is no answer: the machine did not run it, or it was ended before it exited.
    """
    completed = machine.run(argv, timeout_s=COMMAND_TIMEOUT_S)
    if completed.status >= _NO_ANSWER:
        message = f"status {completed.status}: {completed.stderr.strip()}"
        raise MachineError(f"{machine.name}: {argv[0]}: {message}")
    return completed


def is_silent(machine: Machine) -> bool:
    """Return whether nothing answers on either network."""
    return not machine.answers_on_control() and not machine.reached_from_control_plane()


def is_connected(machine: Machine) -> bool:
    """Return whether it reaches the control plane and is reached from there. Raises MachineError."""
    return machine.reaches_control_plane() and machine.reached_from_control_plane()


def is_up(machine: Machine) -> bool:
    """Return whether it runs, accepts SSH and reaches the control plane both ways. Raises MachineError."""
    return machine.is_powered() and machine.answers_on_control() and is_connected(machine)


def has_booted(machine: Machine) -> bool:
    """Return whether it is up and its kubelet serves: without a kubelet a node is no better than off.

    Raises:
        MachineError: The machine did not answer.
    """
    return is_up(machine) and machine.serves_kubelet()


def has_own_kernel(machine: Shell) -> bool:
    """Return whether the machine has a kernel of its own, not its host's. Raises MachineError."""
    return output_of(machine, "readlink", "/proc/1/ns/pid").strip() == FIRST_PID_NAMESPACE
