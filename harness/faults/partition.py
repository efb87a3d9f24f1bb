"""Partition: the node's data network drops what goes between it and the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.faults.fault import COMMAND_LIMIT_S
from harness.machines.machine import Machine, MachineError, Shell

Json = Any
Direction = Literal["both", "node-to-api", "api-to-node"]


@dataclass(frozen=True)
class Partition:
    """Cuts `node` from the control plane with one nftables table of its own.

    `node-to-api` and `api-to-node` drop whole connections by who opened them (conntrack's original
    direction), in both directions of their packets; the connections of the other opener live on.
    """

    id: str
    node: str
    direction: Direction = "both"
    ends_components: bool = False

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": "partition", "id": self.id, "node": self.node, "direction": self.direction}

    def available(self, machine: Shell) -> str:
        """nft must be there and allowed to list tables."""
        done = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
        return "" if done.status == 0 else f"nft does not work on {self.node}: {done.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Load the table in one transaction; whatever an earlier try left is replaced."""
        self._nft(machine, f"{self._drop_table()}\n{self._rules(machine)}")

    def heal(self, machine: Shell) -> None:
        """Delete the table, there or not (`destroy table` is too new for nft 1.0.6)."""
        self._nft(machine, self._drop_table())

    def is_injected(self, machine: Machine) -> bool:
        """What must be cut is cut, and what must pass passes, seen from the other end."""
        out_cut, in_cut = self.direction != "api-to-node", self.direction != "node-to-api"
        return machine.reaches_control_plane() != out_cut and machine.reached_from_control_plane() != in_cut

    def is_healed(self, machine: Machine) -> bool:
        """Both ways are open again."""
        return machine.reaches_control_plane() and machine.reached_from_control_plane()

    @property
    def _table(self) -> str:
        return f"nodeproof_{self.id}"

    def _drop_table(self) -> str:
        return f"add table inet {self._table}\ndelete table inet {self._table}"

    def _rules(self, machine: Shell) -> str:
        node, api = machine.data_address, machine.control_plane_address
        matches = {
            "both": [f"ip daddr {api} drop", f"ip saddr {api} drop"],
            "node-to-api": [f"ct original ip saddr {node} ct original ip daddr {api} drop"],
            "api-to-node": [f"ct original ip saddr {api} ct original ip daddr {node} drop"],
        }[self.direction]
        lines = [f"add table inet {self._table}"]
        for hook in ("input", "output"):
            lines.append(f"add chain inet {self._table} {hook} {{ type filter hook {hook} priority 0; }}")
            lines += [f"add rule inet {self._table} {hook} {match}" for match in matches]
        return "\n".join(lines)

    def _nft(self, machine: Shell, script: str) -> None:
        done = machine.run(["nft", "-f", "-"], deadline_s=COMMAND_LIMIT_S, stdin=f"{script}\n")
        if done.status != 0:
            raise MachineError(f"{self.node}: nft: {done.stderr.strip()}")
