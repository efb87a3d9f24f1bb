"""Partition: the node's data network drops or rejects its traffic with the control plane."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_TABLE = re.compile(r"^table inet nodeproof_([0-9a-f]{8})$", re.MULTILINE)
"""The table of a fault, named after the fault's id; a node's own table (`nodeproof_track`) does not match."""
Direction = Literal["both", "node-to-api", "api-to-node"]
Answer = Literal["drop", "reject"]
_ANSWERS: Mapping[Answer, Sequence[str]] = {
    "drop": ("{match} drop",),
    "reject": ("meta l4proto tcp {match} reject with tcp reset", "{match} reject"),
}


@dataclass(frozen=True)
class Partition:
    """Cut between `node` and the control plane, by an nftables table of its own; healing deletes it.

    `node-to-api` and `api-to-node` drop whole connections by the side that opened them (conntrack's original
    direction), in both directions of their packets; connections that the other side opened continue. With
    `answer` `reject` the node does not wait: its TCP packets are answered by a reset, all others by an ICMP
    message. A peer that connects to the node waits as before.
    """

    name: ClassVar[str] = "partition"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    direction: Direction = "both"
    answer: Answer = "drop"

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that deletes the table, if any (`destroy table` is too new for nft 1.0.6)."""
        return ["nft", self._drop_table()]

    def to_json(self) -> Mapping[str, Json]:
        return {
            "fault": self.name,
            "id": self.id,
            "node": self.node,
            "direction": self.direction,
            "answer": self.answer,
        }

    def available(self, machine: Shell) -> str:
        """Require a working nft that may list tables."""
        completed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
        return (
            "" if completed.status == 0 else f"nft does not work on {self.node}: {completed.stderr.strip()}"
        )

    def inject(self, machine: Shell) -> None:
        """Load the table in one transaction, which replaces what an earlier attempt left."""
        self._run(machine, ["nft", "-f", "-"], f"{self._drop_table()}\n{self._rules(machine)}\n")

    def heal(self, machine: Shell) -> None:
        """Delete the table, if any."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether exactly the chosen directions are cut, seen from the other end."""
        out_cut, in_cut = self.direction != "api-to-node", self.direction != "node-to-api"
        return machine.reaches_control_plane() != out_cut and machine.reached_from_control_plane() != in_cut

    def is_healed(self, machine: Machine) -> bool:
        """Return whether both directions are open."""
        return machine.reaches_control_plane() and machine.reached_from_control_plane()

    @property
    def _table(self) -> str:
        return f"nodeproof_{self.id}"

    def _drop_table(self) -> str:
        return f"add table inet {self._table}; delete table inet {self._table}"

    def _rules(self, machine: Shell) -> str:
        node, api = machine.data_address, machine.control_plane_address
        matches = {
            "both": [f"ip daddr {api}", f"ip saddr {api}"],
            "node-to-api": [f"ct original ip saddr {node} ct original ip daddr {api}"],
            "api-to-node": [f"ct original ip saddr {api} ct original ip daddr {node}"],
        }[self.direction]
        lines = [f"add table inet {self._table}"]
        for hook, passes in (("input", "iifname"), ("output", "oifname")):
            lines.append(f"add chain inet {self._table} {hook} {{ type filter hook {hook} priority 0; }}")
            # The node's own kernel sends the resets, from the control plane's address.
            lines.append(f'add rule inet {self._table} {hook} {passes} "lo" accept')
            verdicts = [verdict.format(match=match) for match in matches for verdict in _ANSWERS[self.answer]]
            lines += [f"add rule inet {self._table} {hook} {verdict}" for verdict in verdicts]
        return "\n".join(lines)

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> None:
        completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"{self.node}: nft: {completed.stderr.strip()}")


def partitions_on(machine: Shell) -> list[Partition]:
    """Return the partitions whose tables are on a machine. Raises MachineError."""
    listed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
    if listed.status != 0:
        raise MachineError(f"{machine.name}: nft: {listed.stderr.strip()}")
    return [Partition(fault_id, machine.name) for fault_id in _TABLE.findall(listed.stdout)]
