"""The interface of all faults: a disruption and its exact inverse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from nodeproof.machines.machine import Machine, Shell

Json = Any
COMMAND_LIMIT_S = 10.0
Place = Literal["node", "component", "control-plane"]


class Fault(Protocol):
    """A disruption of a cluster and its exact inverse.

    A fault is constructed from data alone, so that another process can heal it later. Every method is
    idempotent. `inject` and `heal` act; `is_injected` and `is_healed` observe from outside and never read
    what `inject` wrote.
    """

    name: ClassVar[str]
    """The name in ledgers and recordings."""
    places: ClassVar[Sequence[Place]]
    """The kinds of machine that the fault can be injected on.

    A component's commands run in the lab's outer namespaces, where a service manager may be the host's.
    """
    ends_components: ClassVar[bool]
    """Whether components on the target may end as part of the fault."""

    @property
    def id(self) -> str:
        """The id, unique in its lab; whatever the fault leaves on a machine is named after it."""
        ...

    @property
    def node(self) -> str:
        """The machine that it is injected on: a node, a component of the control plane, or all of it."""
        ...

    @property
    def harms(self) -> Sequence[str]:
        """The nodes that it may take down, all at once."""
        ...

    @property
    def undo(self) -> Sequence[str]:
        """The command that heals it on the machine itself; empty if only something outside of it can."""
        ...

    def to_json(self) -> Mapping[str, Json]:
        """Return the constructor's arguments, as stored in the ledger."""
        ...

    def available(self, machine: Machine) -> str:
        """Return why this machine cannot have the fault, or an empty string. Raises MachineError."""
        ...

    def inject(self, machine: Shell) -> None:
        """Inject the fault. Raises MachineError."""
        ...

    def heal(self, machine: Shell) -> None:
        """Undo the fault. Raises MachineError."""
        ...

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the fault is visible from outside. Raises MachineError."""
        ...

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the machine looks as before the fault. Raises MachineError."""
        ...
