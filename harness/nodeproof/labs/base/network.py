"""The lab's two networks: bridges in its outer namespace, and one veth pair per node and bridge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from nodeproof import proc
from nodeproof.labs.base.spec import (
    API_ADDRESS,
    CONTROL_NET,
    OUTSIDE_ADDRESS,
    PLANES_NET,
    ControlPlane,
    NodeSpec,
)
from nodeproof.model.cluster import PLANE_BRIDGE

_TIMEOUT_S = 10.0
BRIDGES = {"control": f"{CONTROL_NET}.0.1", "data": API_ADDRESS}
_PLANES_GATEWAY = f"{PLANES_NET}.0.1"
_PLANES_TABLE = f"""
add table ip nodeproof_planes
add chain ip nodeproof_planes leave {{ type nat hook postrouting priority 100; }}
add rule ip nodeproof_planes leave ip saddr {PLANES_NET}.0.0/16 oifname "data" snat to {API_ADDRESS}
add chain ip nodeproof_planes pass {{ type filter hook forward priority 0; }}
add rule ip nodeproof_planes pass iifname "data" oifname "{PLANE_BRIDGE}" ct state new drop
add rule ip nodeproof_planes pass oifname "control" drop
"""
"""Nodes see the address of the API for every control plane, and reach control planes only by the balancer."""
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
        lines += [_bridge(name, net), f"addr add {address}/16 dev {name}", f"link set {name} up"]
    ip_batch(lines)


def _bridge(name: str, net: int) -> str:
    """Return the command for a bridge with an address of its own.

    Without one it has that of a port, and another one once that port is gone: what nodes send would be lost
    until they learn it.
    """
    return f"link add {name} address 02:6e:70:{net:02x}:ff:ff type bridge"


def forward() -> None:
    """Let the lab's network route between its addresses. Raises OSError."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def set_up_planes() -> None:
    """Create the network of several control planes, routed to the nodes. Raises CommandFailed, OSError."""
    lines = [_bridge(PLANE_BRIDGE, len(BRIDGES)), f"addr add {_PLANES_GATEWAY}/16 dev {PLANE_BRIDGE}"]
    ip_batch([*lines, f"link set {PLANE_BRIDGE} up"])
    forward()
    proc.run(["nft", "-f", "-"], stdin=_PLANES_TABLE, timeout_s=_TIMEOUT_S)


def connect_plane(plane: ControlPlane, pid: int) -> None:
    """Give the namespace of `pid` its interface, address and default route. Raises CommandFailed."""
    end = _plane_end(plane)
    own = f"02:6e:70:02:00:{plane.number:02x}"
    outer = f"link add {end} type veth peer name {PLANE_BRIDGE} address {own} netns {pid}"
    ip_batch([outer, f"link set {end} master {PLANE_BRIDGE} up"])
    inner = [f"addr add {plane.address}/16 dev {PLANE_BRIDGE}", f"link set {PLANE_BRIDGE} up"]
    ip_batch(["link set lo up", *inner, f"route add default via {_PLANES_GATEWAY} dev {PLANE_BRIDGE}"], pid)


def set_plane_link(plane: ControlPlane, state: Literal["up", "down"]) -> None:
    """Set the link of a control plane at the bridge up or down. Raises CommandFailed."""
    ip_batch([f"link set {_plane_end(plane)} {state}"])


def disconnect_plane(plane: ControlPlane) -> None:
    """Remove the link of a control plane, if any."""
    proc.run(["ip", "link", "delete", _plane_end(plane)], timeout_s=_TIMEOUT_S, check=False)


def _plane_end(plane: ControlPlane) -> str:
    return f"p{plane.number}"


def connect_node(node: NodeSpec, pid: int) -> None:
    """Give the namespace of `pid` its interfaces, addresses and default route. Raises CommandFailed."""
    outer, inner = [], ["link set lo up"]
    for bridge, address in (("control", node.control_address), ("data", node.data_address)):
        end, own = outer_end(node, bridge), _hardware_address(node, bridge)
        outer += [
            f"link add {end} type veth peer name {bridge} address {own} netns {pid}",
            f"link set {end} master {bridge} up",
        ]
        inner += [f"addr add {address}/16 dev {bridge}", f"link set {bridge} up"]
    ip_batch(outer)
    ip_batch([*inner, f"route add default via {API_ADDRESS} dev data"], pid)
    in_network(pid, ["nft", "-f", "-"], TRACKING)


def set_links(node: NodeSpec, names: Iterable[str], state: Literal["up", "down"]) -> None:
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
        argv = ["ip", "link", "delete", outer_end(node, bridge)]
        proc.run(argv, timeout_s=_TIMEOUT_S, check=False)


def _hardware_address(node: NodeSpec, bridge: str) -> str:
    """Return the slot's MAC address: neighbours need not learn a new one after a power cycle."""
    net = list(BRIDGES).index(bridge)
    return f"02:6e:70:{net:02x}:{node.slot // 256:02x}:{node.slot % 256:02x}"


def outer_end(node: NodeSpec, bridge: str) -> str:
    """Return the name of a node's link at the bridge (at most 15 characters)."""
    return f"{bridge[0]}{node.slot}"


def ip_batch(lines: list[str], pid: int | None = None) -> None:
    """Run ip(8) commands in one process, in the network namespace of `pid` if any. Raises CommandFailed."""
    argv = ["ip", "-batch", "-"]
    if pid is not None:
        argv = [*_enter(pid), *argv]
    proc.run(argv, stdin="\n".join(lines) + "\n", timeout_s=_TIMEOUT_S)


def in_network(pid: int, argv: list[str], stdin: str = "") -> None:
    """Run a command in the network namespace of `pid`. Raises CommandFailed."""
    proc.run([*_enter(pid), *argv], stdin=stdin, timeout_s=_TIMEOUT_S)


def _enter(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
