"""The machines of several control planes: a network and a host name each, held by a first process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.network import BRIDGES, add_bridge, delete_link, forward, ip_batch
from nodeproof.labs.base.nodes import LinkState
from nodeproof.labs.base.processes import Processes
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT, PLANES_NET, ControlPlane, LabSpec
from nodeproof.model.cluster import PLANE_BRIDGE
from nodeproof.model.problem import Problem
from nodeproof.waiting import wait_until

BALANCER = "load-balancer"
"""The component that passes connections to the API servers of several control planes."""
_BOOT_TIMEOUT_S = 10.0
_HOLDER = "sleep"
"""The first process of a machine, which holds its namespaces."""
_RETRY_DELAY = "1s"
"""How often the balancer tries an API server that did not accept a connection."""
_SYN_RETRIES = "1"
"""The balancer dials without a limit of its own. The kernel gives up a dial after 3 s with one repetition,
after 127 s without this limit; the balancer then tries the next API server.
"""
_GATEWAY = f"{PLANES_NET}.0.1"
_TABLE = f"""
add table ip nodeproof_planes
add chain ip nodeproof_planes leave {{ type nat hook postrouting priority 100; }}
add rule ip nodeproof_planes leave ip saddr {PLANES_NET}.0.0/16 oifname "data" snat to {API_ADDRESS}
add chain ip nodeproof_planes pass {{ type filter hook forward priority 0; }}
add rule ip nodeproof_planes pass iifname "data" oifname "{PLANE_BRIDGE}" ct state new drop
add rule ip nodeproof_planes pass oifname "control" drop
"""
"""Nodes see the address of the API for every control plane, and reach control planes only by the balancer."""


class Planes:
    """The machines of a lab's control planes, by name; a lab with only one has none.

    A method does nothing if no machine has the name. A boot makes a new network: earlier connections end
    without a packet, as after a power loss.
    """

    def __init__(self, processes: Processes, control_planes: Sequence[ControlPlane]) -> None:
        self._processes = processes
        self._planes = {plane.name: plane for plane in control_planes if plane.number}

    @property
    def names(self) -> Sequence[str]:
        """The names of the machines."""
        return tuple(self._planes)

    def host_of(self, component: str) -> str:
        """Return the machine that a component runs on; empty for one beside all of them."""
        number = component.rpartition("-")[2]
        name = next((name for name, plane in self._planes.items() if str(plane.number) == number), "")
        return "" if component == name else name

    def boot(self, name: str) -> None:
        """Start a machine, with its network, unless it is on. Raises Problem, CommandFailed."""
        # A power-off that failed half-way may have left its link down.
        self.set_link(name, "up")
        if name not in self._planes or self.pid(name) is not None:
            return
        script = f"hostname {name} && exec {_HOLDER} infinity"
        child = self._processes.start(name, ["unshare", "--net", "--uts", "--", "sh", "-c", script])
        try:
            if not wait_until(lambda: _command(child.pid) == _HOLDER, _BOOT_TIMEOUT_S, 0.01):
                message = f"{name} has no namespaces after {_BOOT_TIMEOUT_S:g} s"
                raise Problem(message, "control plane", f"see {name}.log")
            self._connect(self._planes[name], child.pid)
        except BaseException:
            # Otherwise the next try would take it for booted.
            self.end(name)
            raise

    def _connect(self, plane: ControlPlane, pid: int) -> None:
        """Give the namespace of `pid` its interface, address and default route. Raises CommandFailed."""
        end, own = _outer_end(plane), f"02:6e:70:02:00:{plane.number:02x}"
        outer = f"link add {end} type veth peer name {PLANE_BRIDGE} address {own} netns {pid}"
        ip_batch([outer, f"link set {end} master {PLANE_BRIDGE} up"])
        inner = [f"addr add {plane.address}/16 dev {PLANE_BRIDGE}", f"link set {PLANE_BRIDGE} up"]
        ip_batch(["link set lo up", *inner, f"route add default via {_GATEWAY} dev {PLANE_BRIDGE}"], pid)

    def end(self, name: str) -> None:
        """End a machine whose components have ended; its network ends with it."""
        if name in self._planes:
            self._processes.expect_end([name])
            self._processes.kill(name)
            delete_link(_outer_end(self._planes[name]))

    def set_link(self, name: str, state: LinkState) -> None:
        """Connect a machine that is on to the others and to the nodes, or disconnect it.

        Raises CommandFailed.
        """
        if name in self._planes and self.pid(name) is not None:
            ip_batch([f"link set {_outer_end(self._planes[name])} {state}"])

    def pid(self, name: str) -> int | None:
        """Return the process that holds a machine's namespaces; None while it is off."""
        return self._processes.pids().get(name)

    def pids(self) -> Mapping[str, int | None]:
        """Return the process that holds each machine's namespaces."""
        return {name: self.pid(name) for name in self._planes}

    def enter(self, name: str) -> list[str]:
        """Return the command prefix that enters a machine.

        Without a PID namespace nsenter(1) starts no child: the command's process id is its own. Raises
        Problem if the machine is off.
        """
        if name not in self._planes:
            return []
        pid = self.pid(name)
        if pid is None:
            raise Problem(f"{name} is off", "control plane", "power it on first")
        return enter_plane(pid)


def set_up_network() -> None:
    """Create the network of several control planes, routed to the nodes. Raises CommandFailed, OSError."""
    lines = [add_bridge(PLANE_BRIDGE, len(BRIDGES)), f"addr add {_GATEWAY}/16 dev {PLANE_BRIDGE}"]
    ip_batch([*lines, f"link set {PLANE_BRIDGE} up"])
    forward()
    tcp = Path("/proc/sys/net/ipv4")
    (tcp / "tcp_syn_retries").write_text(_SYN_RETRIES)
    with contextlib.suppress(FileNotFoundError):
        # Linux 6.5 and later repeat a SYN so many times more.
        (tcp / "tcp_syn_linear_timeouts").write_text("0")
    proc.run(["nft", "-f", "-"], stdin=_TABLE, timeout_s=_BOOT_TIMEOUT_S)


def enter_plane(pid: int) -> list[str]:
    """Return the command prefix that enters the machine whose first process is `pid`."""
    return ["nsenter", f"--target={pid}", "--net", "--uts", "--"]


def balancer(spec: LabSpec, addresses: Iterable[str]) -> list[str]:
    """Return the command of etcd's TCP proxy in front of the API servers at `addresses` (etcd gateway)."""
    endpoints = ",".join(f"{address}:{API_PORT}" for address in addresses)
    return [
        spec.binary("etcd"),
        *("gateway", "start", f"--listen-addr={API_ADDRESS}:{API_PORT}"),
        *(f"--endpoints={endpoints}", f"--retry-delay={_RETRY_DELAY}"),
    ]


def _outer_end(plane: ControlPlane) -> str:
    """Return the name of a control plane's link at the bridge."""
    return f"p{plane.number}"


def _command(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes()).strip()
    except OSError:
        return ""
