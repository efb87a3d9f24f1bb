"""Faults of the data network, each by an nftables table of its own."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault, ids_in, is_connected, output_of
from nodeproof.machines.machine import CONTROL_PLANE, Machine, Shell, checked
from nodeproof.model.cluster import PLANE_BRIDGE

Direction = Literal["both", "node-to-api", "api-to-node"]
Answer = Literal["drop", "reject"]
_ANSWERS: Mapping[Answer, Sequence[str]] = {
    "drop": ("{match} drop",),
    "reject": ("meta l4proto tcp {match} reject with tcp reset", "{match} reject"),
}
SSH_CONNECTION = r"([0-9a-f.:]+)(%[^ ]+)? [0-9]+ [^ ]+ ([0-9]+)"
"""A peer that has an address, in the variable of this name (sshd(8)): its address and port, then ours.

Each command may have a connection of its own, from another port of the peer.
"""
_DIAL_TIMEOUT_S = 0.4
# Dial all at once; a refusal is an answer. Silence is the status of a timeout, or no route.
_SILENT = f"""
for address; do
    (timeout {_DIAL_TIMEOUT_S} bash -c 'exec 3<>/dev/tcp/$0/$1' "$address" "$0" 2>&1 | grep -q 'refused' ||
        [ "${{PIPESTATUS[0]}}" -eq 0 ] || echo "$address") &
done
wait
"""


class TableFault(Fault):
    """A table of a machine's firewall, named after the fault's id."""

    prefix: ClassVar[str]
    """The prefix of the table's name; a node's own table (`nodeproof_track`) has no id after it."""

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that deletes the table, if any (`destroy table` is too new for nft 1.0.6)."""
        return ["nft", self._drop_table]

    def available(self, machine: Shell) -> str:
        completed = machine.run(["nft", "list", "tables"], timeout_s=COMMAND_TIMEOUT_S)
        return f"nft does not work on {self.node}: {completed.stderr.strip()}" if completed.status else ""

    def inject(self, machine: Shell) -> None:
        """Load the table in one transaction, which replaces what an earlier attempt left."""
        commands = [self._drop_table, f"add table inet {self.table}", *self.rules(machine)]
        self.run(machine, ["nft", "-f", "-"], "\n".join(commands) + "\n")

    @abstractmethod
    def rules(self, machine: Shell) -> Iterator[str]:
        """Yield the commands that fill the table."""

    @property
    def table(self) -> str:
        return f"{self.prefix}_{self.id}"

    @property
    def _drop_table(self) -> str:
        return f"add table inet {self.table}; delete table inet {self.table}"

    @classmethod
    def ids_on(cls, machine: Shell) -> list[str]:
        """Return the ids of the faults whose tables are on a machine. Raises MachineError."""
        listed = machine.run(["nft", "list", "tables"], timeout_s=COMMAND_TIMEOUT_S)
        return ids_in(checked(listed, f"{machine.name}: nft"), f"table inet {cls.prefix}_ID$")


@dataclass(frozen=True)
class Partition(TableFault):
    """Cut between `node` and the control plane, by an nftables table of its own; healing deletes it.

    SSH from where the fault was injected continues, even if that is an address of the control plane.

    `node-to-api` and `api-to-node` drop whole connections by the side that opened them, in both directions of
    their packets; connections that the other side opened continue. With `answer` `reject` the node does not
    wait: its TCP packets are answered by a reset, all others by an ICMP message. A peer that connects to the
    node waits as before.
    """

    name = "partition"
    prefix = "nodeproof"
    direction: Direction = "both"
    answer: Answer = "drop"

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Partition]:
        return [cls(machine.name, id=fault_id) for fault_id in cls.ids_on(machine)]

    def available(self, machine: Shell) -> str:
        if machine.data_address in machine.control_plane_addresses:
            return f"{self.node} runs an API server itself, from which nothing cuts it off"
        return super().available(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether exactly the chosen directions are cut, seen from the other end."""
        out_cut, in_cut = self.direction != "api-to-node", self.direction != "node-to-api"
        return machine.reaches_control_plane() != out_cut and machine.reached_from_control_plane() != in_cut

    def is_healed(self, machine: Machine) -> bool:
        return is_connected(machine)

    def rules(self, machine: Shell) -> Iterator[str]:
        addresses, ssh = machine.control_plane_addresses, _ssh_peer(machine)
        for hook, passes, remote, own in (("input", "iif", "s", "d"), ("output", "oif", "d", "s")):
            yield f"add chain inet {self.table} {hook} {{ type filter hook {hook} priority 0; }}"
            if ssh:
                peer, port = ssh
                kept = f"{_family(peer)} {remote}addr {peer} tcp {own}port {port}"
                yield f"add rule inet {self.table} {hook} {kept} accept"
            # The node's own kernel sends the resets, from the control plane's address.
            yield f'add rule inet {self.table} {hook} {passes}name "lo" accept'
            for api in addresses:
                match = self._match(api, f"{remote}addr")
                for verdict in _ANSWERS[self.answer]:
                    yield f"add rule inet {self.table} {hook} {verdict.format(match=match)}"

    def _match(self, api: str, remote: str) -> str:
        """Return what matches the packets of one hook, where `remote` is the other side's address."""
        # `ct original` is the direction of a connection's first packet. The other side is any address of the
        # node, which may have one of each family.
        original = f"ct original {_family(api)}"
        return {
            "both": f"{_family(api)} {remote} {api}",
            "node-to-api": f"{original} daddr {api}",
            "api-to-node": f"{original} saddr {api}",
        }[self.direction]


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def _ssh_peer(machine: Shell) -> tuple[str, str] | None:
    """Return the address that SSH comes from, and the port that it uses, if any. Raises MachineError."""
    shown = output_of(machine, "sh", "-c", 'echo "$SSH_CONNECTION"').strip()
    connection = re.fullmatch(SSH_CONNECTION, shown)
    return (connection[1], connection[3]) if connection else None


class SilenceFault(TableFault):
    """A table that silences all machines of a mapping of names to addresses, and nothing else."""

    port: ClassVar[str]
    """A port that each of them serves."""

    @property
    @abstractmethod
    def silenced(self) -> Mapping[str, str]:
        """The addresses of the silenced machines, by name."""

    def available(self, machine: Shell) -> str:
        return (
            super().available(machine)
            if self.silenced
            else f"{self.name}: name at least one machine to cut off"
        )

    def is_injected(self, machine: Machine) -> bool:
        return self._silent(machine) == set(self.silenced.values())

    def is_healed(self, machine: Machine) -> bool:
        return not self._silent(machine)

    def _silent(self, machine: Shell) -> set[str]:
        """Return the addresses that do not answer a dial by a machine. Raises MachineError."""
        return set(self.run(machine, ["bash", "-c", _SILENT, self.port, *self.silenced.values()]).split())


@dataclass(frozen=True)
class Outage(SilenceFault):
    """Loss of all traffic between the control plane and `nodes`, by one nftables table; healing deletes it.

    All nodes are cut off at the same instant. `nodes` maps names to data addresses.
    """

    name = "outage"
    places = ("control-plane",)
    prefix = "nodeproof_outage"
    port = "10250"
    node: str = field(default=CONTROL_PLANE, init=False)
    nodes: Mapping[str, str]

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Outage]:
        return [cls({}, id=fault_id) for fault_id in cls.ids_on(machine)]

    @property
    def affected_nodes(self) -> Sequence[str]:
        return tuple(self.nodes)

    @property
    def silenced(self) -> Mapping[str, str]:
        return self.nodes

    def rules(self, machine: Shell) -> Iterator[str]:
        del machine
        addresses = ", ".join(self.nodes.values())
        yield f"add set inet {self.table} cut {{ type ipv4_addr; elements = {{ {addresses} }}; }}"
        for hook, side in (("input", "saddr"), ("output", "daddr")):
            yield f"add chain inet {self.table} {hook} {{ type filter hook {hook} priority 0; }}"
            yield f"add rule inet {self.table} {hook} ip {side} @cut drop"
        # Several control planes are behind a bridge; with br_netfilter, frames between nodes pass here, too.
        yield f"add chain inet {self.table} forward {{ type filter hook forward priority 0; }}"
        for passes, side in (("iifname", "daddr"), ("oifname", "saddr")):
            yield f'add rule inet {self.table} forward {passes} "{PLANE_BRIDGE}" ip {side} @cut drop'


@dataclass(frozen=True)
class PeerPartition(SilenceFault):
    """Cut between the control plane `node` and its `peers`, by an nftables table; healing deletes it.

    The balancer and the nodes still reach it. `peers` maps names of control planes to addresses. The fault
    ends with a power cycle. Needs a lab with several control planes.
    """

    name = "peer-partition"
    places = ("plane",)
    ends_with_power = True
    prefix = "nodeproof_peers"
    port = "2380"
    peers: Mapping[str, str]

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[PeerPartition]:
        return [cls(machine.name, {}, id=fault_id) for fault_id in cls.ids_on(machine)]

    @property
    def silenced(self) -> Mapping[str, str]:
        return self.peers

    def rules(self, machine: Shell) -> Iterator[str]:
        del machine
        addresses = ", ".join(self.peers.values())
        for hook, side in (("input", "saddr"), ("output", "daddr")):
            yield f"add chain inet {self.table} {hook} {{ type filter hook {hook} priority 0; }}"
            yield f"add rule inet {self.table} {hook} ip {side} {{ {addresses} }} drop"
