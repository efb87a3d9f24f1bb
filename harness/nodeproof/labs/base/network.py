"""The lab's two networks: bridges in its outer namespace, and one veth pair per node and bridge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.nodes import LinkState
from nodeproof.labs.base.spec import API_ADDRESS, CONTROL_NET, OUTSIDE_ADDRESS, NodeSpec

_TIMEOUT_S = 10.0
BRIDGES = {"control": f"{CONTROL_NET}.0.1", "data": API_ADDRESS}
TRACK_TABLE = "nodeproof_track"
TRACKING = f"""
add table inet {TRACK_TABLE}
add chain inet {TRACK_TABLE} track {{ type filter hook prerouting priority -10; }}
add rule inet {TRACK_TABLE} track ct state new counter
"""
"""Loads connection tracking before a node's kubelet starts, so that it records who opened each connection."""


def set_up_bridges() -> None:
    """Create the two bridges and the outside address in this network namespace. Raises CommandFailed."""
    lines = ["link set lo up", f"addr add {OUTSIDE_ADDRESS}/32 dev lo"]
    for net, (name, address) in enumerate(BRIDGES.items()):
        lines += [add_bridge(name, net), f"addr add {address}/16 dev {name}", f"link set {name} up"]
    ip_batch(lines)


def add_bridge(name: str, net: int) -> str:
    """Return the command for a bridge with an address of its own.

    Without one it has that of a port, and another one once that port is gone: what nodes send would be lost
    until they learn it.
    """
    return f"link add {name} address 02:6e:70:{net:02x}:ff:ff type bridge"


def forward() -> None:
    """Let the lab's network route between its addresses. Raises OSError."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def connect_node(node: NodeSpec, pid: int) -> None:
    """Give the namespace of `pid` its interfaces, addresses and default route. Raises CommandFailed."""
    outer, inner = [], ["link set lo up"]
    for net, (bridge, address) in enumerate((("control", node.control_address), ("data", node.data_address))):
        end = outer_end(node, bridge)
        # The slot's own: neighbours need not learn a new address after a power cycle.
        own = f"02:6e:70:{net:02x}:{node.slot // 256:02x}:{node.slot % 256:02x}"
        outer.append(f"link add {end} type veth peer name {bridge} address {own} netns {pid}")
        outer.append(f"link set {end} master {bridge} up")
        inner += [f"addr add {address}/16 dev {bridge}", f"link set {bridge} up"]
    ip_batch(outer)
    ip_batch([*inner, f"route add default via {API_ADDRESS} dev data"], pid)
    proc.run([*_enter(pid), "nft", "-f", "-"], stdin=TRACKING, timeout_s=_TIMEOUT_S)


def set_links(node: NodeSpec, names: Iterable[str], state: LinkState) -> None:
    """Set a node's links at the bridges up or down; down means no carrier. Raises CommandFailed."""
    lines = [f"link set {outer_end(node, bridge)} {state}" for bridge in names]
    if lines:
        ip_batch(lines)


def disconnect_node(node: NodeSpec) -> None:
    """Remove a node's links, if any.

    They outlive the node's processes: orphaned sockets that cannot send their FIN keep the network namespace
    for minutes.
    """
    for bridge in BRIDGES:
        delete_link(outer_end(node, bridge))


def delete_link(name: str) -> None:
    """Delete a link in this network namespace, if it exists."""
    proc.run(["ip", "link", "delete", name], timeout_s=_TIMEOUT_S, check=False)


def outer_end(node: NodeSpec, bridge: str) -> str:
    """Return the name of a node's link at the bridge (at most 15 characters)."""
    return f"{bridge[0]}{node.slot}"


def ip_batch(lines: list[str], pid: int | None = None) -> None:
    """Run ip(8) commands in one process, in the network namespace of `pid` if any. Raises CommandFailed."""
    enter = [] if pid is None else _enter(pid)
    proc.run([*enter, "ip", "-batch", "-"], stdin="\n".join(lines) + "\n", timeout_s=_TIMEOUT_S)


def _enter(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
