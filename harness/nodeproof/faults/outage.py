"""Outage: any number of nodes is cut from the control plane at once, on the control plane's side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell

Json = Any
_TABLE = re.compile(r"^table inet nodeproof_outage_([0-9a-f]{8})$", re.MULTILINE)
_DIAL_LIMIT_S = 0.4
# All at once; a refusal is an answer. Silence is a timeout's status, or no way there.
_SILENT = f"""
for address; do
    (timeout {_DIAL_LIMIT_S} bash -c 'exec 3<>/dev/tcp/$0/10250' "$address" 2>&1 | grep -q 'refused' ||
        [ "${{PIPESTATUS[0]}}" -eq 0 ] || echo "$address") &
done
wait
"""


@dataclass(frozen=True)
class Outage:
    """Drops all that goes between the control plane and `nodes`, by one nftables table, from one instant on;
    healing deletes it.

    `nodes` are their data addresses by name.
    """

    name: ClassVar[str] = "outage"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """Every one of them."""
        return tuple(self.nodes)

    @property
    def undo(self) -> Sequence[str]:
        """Delete the table, there or not."""
        return ["nft", self._drop_table()]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "nodes": dict(self.nodes), "node": self.node}

    def available(self, machine: Shell) -> str:
        """nft must be there and allowed to list tables, and somebody must be cut off."""
        if not self.nodes:
            return "an outage of no node"
        done = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
        return "" if done.status == 0 else f"nft does not work on {self.node}: {done.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Load the table in one transaction; whatever an earlier try left is replaced."""
        self._run(machine, ["nft", "-f", "-"], f"{self._drop_table()}\n{self._rules()}\n")

    def heal(self, machine: Shell) -> None:
        """Delete the table, there or not."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """None of them is reached."""
        return self._silent(machine) == set(self.nodes.values())

    def is_healed(self, machine: Machine) -> bool:
        """Every one of them is."""
        return not self._silent(machine)

    @property
    def _table(self) -> str:
        return f"nodeproof_outage_{self.id}"

    def _drop_table(self) -> str:
        return f"add table inet {self._table}; delete table inet {self._table}"

    def _rules(self) -> str:
        addresses = ", ".join(self.nodes.values())
        lines = [
            f"add table inet {self._table}",
            f"add set inet {self._table} cut {{ type ipv4_addr; elements = {{ {addresses} }}; }}",
        ]
        for hook, side in (("input", "saddr"), ("output", "daddr")):
            lines.append(f"add chain inet {self._table} {hook} {{ type filter hook {hook} priority 0; }}")
            lines.append(f"add rule inet {self._table} {hook} ip {side} @cut drop")
        return "\n".join(lines)

    def _silent(self, machine: Machine) -> set[str]:
        """The addresses of those that do not answer a dial from the control plane's side."""
        return set(self._run(machine, ["bash", "-c", _SILENT, "dial", *self.nodes.values()]).split())

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if done.status != 0:
            raise MachineError(f"{self.node}: {argv[0]}: {done.stderr.strip()}")
        return done.stdout


def outages_on(machine: Shell) -> list[Outage]:
    """The outages whose tables a control plane has. Raises MachineError."""
    listed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
    if listed.status != 0:
        raise MachineError(f"{machine.name}: nft: {listed.stderr.strip()}")
    return [Outage(found) for found in _TABLE.findall(listed.stdout)]
