"""Outage: several nodes are cut off from the control plane at once, on the control plane's side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell

Json = Any
_TABLE = re.compile(r"^table inet nodeproof_outage_([0-9a-f]{8})$", re.MULTILINE)
_DIAL_TIMEOUT_S = 0.4
# Dial all at once; a refusal is an answer. Silence is the status of a timeout, or no route.
_SILENT = f"""
for address; do
    (timeout {_DIAL_TIMEOUT_S} bash -c 'exec 3<>/dev/tcp/$0/10250' "$address" 2>&1 | grep -q 'refused' ||
        [ "${{PIPESTATUS[0]}}" -eq 0 ] || echo "$address") &
done
wait
"""


@dataclass(frozen=True)
class Outage:
    """Loss of all traffic between the control plane and `nodes`, by one nftables table; healing deletes it.

    All nodes are cut off at the same instant. `nodes` maps names to data addresses.
    """

    name: ClassVar[str] = "outage"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """All of the nodes."""
        return tuple(self.nodes)

    @property
    def undo(self) -> Sequence[str]:
        """The command that deletes the table, if any."""
        return ["nft", self._drop_table()]

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "nodes": dict(self.nodes), "node": self.node}

    def available(self, machine: Shell) -> str:
        """Require at least one node, and a working nft that may list tables."""
        if not self.nodes:
            return "an outage needs at least one node"
        completed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
        return (
            "" if completed.status == 0 else f"nft does not work on {self.node}: {completed.stderr.strip()}"
        )

    def inject(self, machine: Shell) -> None:
        """Load the table in one transaction, which replaces what an earlier attempt left."""
        self._run(machine, ["nft", "-f", "-"], f"{self._drop_table()}\n{self._rules()}\n")

    def heal(self, machine: Shell) -> None:
        """Delete the table, if any."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether none of the nodes answers."""
        return self._silent(machine) == set(self.nodes.values())

    def is_healed(self, machine: Machine) -> bool:
        """Return whether all of the nodes answer."""
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
        """Return the addresses of the nodes that do not answer a dial from the control plane's side."""
        return set(self._run(machine, ["bash", "-c", _SILENT, "dial", *self.nodes.values()]).split())

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"{self.node}: {argv[0]}: {completed.stderr.strip()}")
        return completed.stdout


def outages_on(machine: Shell) -> list[Outage]:
    """Return the outages whose tables are on a control plane. Raises MachineError."""
    listed = machine.run(["nft", "list", "tables"], deadline_s=COMMAND_LIMIT_S)
    if listed.status != 0:
        raise MachineError(f"{machine.name}: nft: {listed.stderr.strip()}")
    return [Outage(fault_id) for fault_id in _TABLE.findall(listed.stdout)]
