"""The machines of several control planes: a network and a host name each, held by a first process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from nodeproof.labs.base import network
from nodeproof.labs.base.processes import Processes
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT, ControlPlane, LabSpec
from nodeproof.model.problem import Problem
from nodeproof.waiting import wait_until

BALANCER = "load-balancer"
"""The component that passes connections to the API servers of several control planes."""
_BOOT_TIMEOUT_S = 10.0
_HOLDER = "sleep"
"""The first process of a machine, which holds its namespaces."""
_RETRY_DELAY = "1s"
"""How often the balancer tries an API server that did not accept a connection."""


class Planes:
    """The machines of a lab's control planes, by name; a lab with only one has none.

    A boot makes a new network: earlier connections end without a packet, as after a power loss.
    """

    def __init__(self, processes: Processes, control_planes: Sequence[ControlPlane] = ()) -> None:
        self._processes = processes
        self._planes = {plane.name: plane for plane in control_planes if plane.number}

    def __contains__(self, name: str) -> bool:
        return name in self._planes

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
        if self.pid(name) is not None:
            # A power-off that failed half-way may have left its link down.
            self.set_link(name, "up")
            return
        script = f"hostname {name} && exec {_HOLDER} infinity"
        child = self._processes.start(name, ["unshare", "--net", "--uts", "--", "sh", "-c", script])
        try:
            self._connect(name, child.pid)
        except BaseException:
            # Otherwise the next try would take it for booted.
            self.end(name)
            raise

    def _connect(self, name: str, pid: int) -> None:
        if not wait_until(lambda: _command(pid) == _HOLDER, _BOOT_TIMEOUT_S, 0.01):
            message = f"{name} has no namespaces after {_BOOT_TIMEOUT_S:g} s"
            raise Problem(message, "control plane", f"see {name}.log")
        network.connect_plane(self._planes[name], pid)

    def end(self, name: str) -> None:
        """End a machine whose components have ended; its network ends with it."""
        self._processes.expect_end([name])
        self._processes.kill(name)
        network.disconnect_plane(self._planes[name])

    def set_link(self, name: str, state: Literal["up", "down"]) -> None:
        """Connect a machine to the others and to the nodes, or disconnect it. Raises CommandFailed."""
        network.set_plane_link(self._planes[name], state)

    def pid(self, name: str) -> int | None:
        """Return the process that holds a machine's namespaces; None while it is off."""
        return self._processes.pids().get(name)

    def pids(self) -> Mapping[str, int | None]:
        """Return the process that holds each machine's namespaces."""
        return {name: self.pid(name) for name in self._planes}

    def enter(self, name: str) -> list[str]:
        """Return the command prefix that enters a machine; empty for no machine.

        Without a PID namespace nsenter(1) starts no child: the command's process id is its own. Raises
        Problem if the machine is off.
        """
        if not name:
            return []
        pid = self.pid(name)
        if pid is None:
            raise Problem(f"{name} is off", "control plane", "power it on first")
        return enter_plane(pid)


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


def _command(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes()).strip()
    except OSError:
        return ""
