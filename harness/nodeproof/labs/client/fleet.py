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
    """A lab's machines: their names, how to reach them, and power over them."""

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes, on or off; those of its zone if the fleet was narrowed. Raises Problem."""
        ...

    def zones(self) -> list[str]:
        """Return the zones of the whole lab. Raises Problem."""
        ...

    def narrow(self, zone: str) -> None:
        """Restrict the fleet to the nodes of one zone from now on."""
        ...

    def is_others(self, name: str) -> bool:
        """Return whether a node is in another zone. Raises Problem."""
        ...

    def free_slot(self) -> int:
        """Return a slot where a node may join, even if other zones add nodes meanwhile. Raises Problem."""
        ...

    def node_names(self) -> list[str]:
        """Return the nodes' names. Raises Problem."""
        ...

    def has(self, name: str) -> bool:
        """Return whether a node, or a control plane component, of that name exists. Raises Problem."""
        ...

    def machine(self, name: str, purpose: str = ...) -> Machine:
        """Return a node, a control plane component or the whole control plane as a machine.

        Its connection stays open, one per purpose: a command's timeout cuts off all commands that share a
        connection.

        Raises Problem if there is no such machine.
        """
        ...

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        """Return the command lines of the control plane's components, as far as known. Raises Problem."""
        ...

    def owner(self, name: str) -> str:
        """Return a node's owner according to its hypervisor; empty without one. Raises Problem."""
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
        """Let a machine join while the lab runs. Raises Problem.

        Args:
            name: the machine's name.
            zone: its zone.
            slot: its slot, which determines its addresses.
            kubelet: additional fields of its KubeletConfiguration.
            flags: additional kubelet flags.
            node: its Node's name, if it differs from the machine's.
            shape: its hardware.
        """
        ...

    def leave(self, name: str) -> None:
        """Power a node off for good. Raises Problem."""
        ...

    def fetch_journals(self, into: Path) -> None:
        """Fetch the present boot's journals of the machines; skip those that do not answer."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class Life(Protocol):
    """The life cycle of a lab: its health, its logs and its end."""

    def check_alive(self) -> None:
        """Raise Problem, with the last log lines, if a component has died; ignore nodes of other zones."""
        ...

    def has_control_plane(self) -> bool:
        """Return whether no control plane component has died. Raises Problem."""
        ...

    @property
    def logs(self) -> Path:
        """The folder of the components' logs, until the lab is closed. Raises Problem."""
        ...

    def last_lines(self, component: str) -> str:
        """Return the end of a component's log; empty if it has none. Raises Problem."""
        ...

    def full(self, since_t: float | None = None) -> list[str]:
        """Describe each part of the lab's memory that is full, or was since a time (s, monotonic).

        Raises Problem.
        """
        ...

    def close(self) -> None:
        """Give up the lab; it stays."""
        ...

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        ...
