"""The machines of a lab, as nodes and as computers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nodeproof.labs.ground.spec import AS_ALL, Shape
from nodeproof.machines.machine import Machine

Json = Any


@dataclass(frozen=True)
class NodeInfo:
    """One node of a running lab."""

    name: str
    slot: int
    zone: str
    on: bool
    control_address: str
    data_address: str
    machine_id: str


class Fleet(Protocol):
    """Who a lab's machines are, how each is reached, and what is done to it from outside."""

    def nodes(self) -> list[NodeInfo]:
        """The nodes, on or off; of a narrowed fleet those of its zone. Raises Problem."""
        ...

    def zones(self) -> list[str]:
        """The whole lab's zones. Raises Problem."""
        ...

    def narrow(self, zone: str) -> None:
        """Know the nodes of one zone only, from now on."""
        ...

    def is_others(self, name: str) -> bool:
        """Whether a node is in a zone that is not ours. Raises Problem."""
        ...

    def free_slot(self) -> int:
        """Where a node may join, whoever else lets one join meanwhile in another zone. Raises Problem."""
        ...

    def node_names(self) -> list[str]:
        """Their names. Raises Problem."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a node, or a component of the control plane, of that name. Raises Problem."""
        ...

    def machine(self, name: str, purpose: str = ...) -> Machine:
        """A node as a computer; its connection stays warm, one for each purpose: a command's deadline cuts
        all that share its own. A component of the control plane, or that as a whole, is one, too.

        Raises Problem when there is none of that name.
        """
        ...

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        """How each component of the control plane is started; of whom nobody knows it has none. Raises
        Problem.
        """
        ...

    def owner(self, name: str) -> str:
        """Whose machine its hypervisor says a node is; nobody's where there is none. Raises Problem."""
        ...

    def join(
        self,
        name: str,
        zone: str,
        slot: int,
        kubelet: Mapping[str, Json],
        flags: Sequence[str] = (),
        node: str = "",
        shape: Shape = AS_ALL,
    ) -> None:
        """Let a machine of this shape join while the lab runs, with these fields of its KubeletConfiguration
        and these flags besides, as the node that is called like it or otherwise.

        Raises Problem.
        """
        ...

    def leave(self, name: str) -> None:
        """Power a node off for good. Raises Problem."""
        ...

    def fetch_journals(self, into: Path) -> None:
        """Fetch what machines wrote of their present boot; who does not answer has none."""
        ...

    def close(self) -> None:
        """Give up all connections."""
        ...


class Life(Protocol):
    """That a lab lives: who keeps it, what it says of itself, how it ends."""

    def check_alive(self) -> None:
        """Refuse to go on with a lab whose component has died; those of other zones' nodes are others'
        business. Raises Problem with its last log lines.
        """
        ...

    def has_control_plane(self) -> bool:
        """Whether no component of the control plane has died. Raises Problem."""
        ...

    @property
    def logs(self) -> Path:
        """The folder of the components' logs, as long as the lab is not closed. Raises Problem."""
        ...

    def last_lines(self, component: str) -> str:
        """What a component's log ends with; nothing where it has none. Raises Problem."""
        ...

    def full(self, since_t: float | None = None) -> list[str]:
        """What of the lab's own memory is full, or was since a time (s, monotonic); a line each. Raises
        Problem.
        """
        ...

    def close(self) -> None:
        """Give the lab up; it stays."""
        ...

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        ...
