"""What every fault is: one harm and its exact inverse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from nodeproof.machines.machine import Machine, Shell

Json = Any
COMMAND_LIMIT_S = 10.0
Place = Literal["node", "component", "control-plane"]


class Fault(Protocol):
    """Constructed from data alone, so that another process can heal it on another day; every verb is
    idempotent.

    `inject` and `heal` act; `is_injected` and `is_healed` look from outside and never read what `inject`
    wrote.
    """

    name: ClassVar[str]
    """What ledgers and recordings call it."""
    places: ClassVar[Sequence[Place]]
    """What it can be done on: a component's commands run in the lab's outer namespaces, where a service
    manager may be the host's.
    """
    ends_components: ClassVar[bool]
    """Whether the end of components on the target is part of the harm."""

    @property
    def id(self) -> str:
        """Unique in its lab; what the fault leaves on a machine carries it."""
        ...

    @property
    def node(self) -> str:
        """The machine that it is done on: a node, a component of the control plane, or that as a whole."""
        ...

    @property
    def harms(self) -> Sequence[str]:
        """The nodes that it may take away, all at once."""
        ...

    @property
    def undo(self) -> Sequence[str]:
        """The command that heals it on the machine itself, with nobody's help; empty where only the machine's
        host can.
        """
        ...

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data, as kept in the ledger."""
        ...

    def available(self, machine: Machine) -> str:
        """Why this machine can't have the fault; empty when it can. Raises MachineError."""
        ...

    def inject(self, machine: Shell) -> None:
        """Do the harm. Raises MachineError."""
        ...

    def heal(self, machine: Shell) -> None:
        """Undo it. Raises MachineError."""
        ...

    def is_injected(self, machine: Machine) -> bool:
        """Whether the harm is seen from outside. Raises MachineError."""
        ...

    def is_healed(self, machine: Machine) -> bool:
        """Whether the machine is seen as before. Raises MachineError."""
        ...
