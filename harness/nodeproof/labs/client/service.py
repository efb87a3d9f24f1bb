"""A component of a lab's control plane as a machine: commands beside it, its power, and its health."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.cluster.api import Api, ApiError
from nodeproof.labs.client.measuring import MANAGER
from nodeproof.labs.ground.services import STATE_FOLDER, Kubectl
from nodeproof.labs.ground.spec import API_ADDRESS, API_PORT
from nodeproof.labs.ground.storage import ATTACHER_PORT
from nodeproof.labs.ground.wire import SupervisorClient
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, MachineError, PowerAction, Shell
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.problem import Problem

Json = Any
_ANSWER_LIMIT_S = 1.0
_PORTS: Mapping[str, tuple[str, int]] = {
    "etcd": ("127.0.0.1", 2379),
    "kube-apiserver": (API_ADDRESS, API_PORT),
    "kube-controller-manager": ("127.0.0.1", 10257),
    "kube-scheduler": ("127.0.0.1", 10259),
    CLOUD: ("127.0.0.1", 10258),
    ATTACHER: ("127.0.0.1", ATTACHER_PORT),
    CONTROL_PLANE: (API_ADDRESS, API_PORT),
}
"""The address and port where each component serves."""
_ZONE_SIZE_METRIC = "node_collector_zone_size{"
"""Exported once the node lifecycle controller has processed the nodes."""
_WITHOUT_TLS = ("etcd", ATTACHER)
_HEALTH_REQUEST = b"GET /healthz HTTP/1.0\r\n\r\n"
SERVICES = tuple(_PORTS)


@dataclass
class ServiceMachine:
    """One component, reached through its lab's supervisor; its only network probe is whether it answers."""

    name: str
    supervisor: SupervisorClient
    api: Api
    bundle: Path
    kubectl: Kubectl
    machine: Callable[[str], Shell]
    """Returns the shell of any machine of the lab."""
    data_address: str = API_ADDRESS
    control_plane_address: str = API_ADDRESS
    state_folder: str = STATE_FOLDER

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the lab's namespaces and the folder of the components' settings.

        `kubectl` is the lab's. Raises MachineError.
        """
        try:
            folder = self.supervisor.status()["settings"]
            command = self.kubectl.at_hand(folder, argv)
            reply = self.supervisor.spawn_command(command, deadline_s, stdin)
        except Problem as problem:
            raise MachineError(problem.line) from problem
        return CommandResult(reply["status"], reply["stdout"], reply["stderr"])

    def power(self, action: PowerAction) -> None:
        """Stop, start, freeze or thaw the component. Raises MachineError."""
        try:
            self.supervisor.power(self.name, action)
        except Problem as problem:
            raise MachineError(problem.line) from problem

    def beside(self, name: str) -> Shell:
        """Return another machine of the lab. Raises MachineError if there is none of that name."""
        try:
            return self.machine(name)
        except Problem as problem:
            raise MachineError(problem.line) from problem

    def is_powered(self) -> bool:
        """Return whether its process runs."""
        return self.name == CONTROL_PLANE or self._status()["pid"] is not None

    def boot_id(self) -> str:
        """Return its process id, which changes with each start."""
        return str(self._status()["pid"])

    def command(self) -> Sequence[str]:
        """Return the command line of its next start. Raises Problem."""
        return tuple(self._status()["argv"])

    def answers_on_control(self) -> bool:
        """Return whether it answers a request: the kernel accepts connections of a frozen process, too."""
        host, port = _PORTS[self.name]
        with contextlib.suppress(OSError), self.supervisor.dial(host, port, _ANSWER_LIMIT_S) as plain:
            plain.settimeout(_ANSWER_LIMIT_S)
            if self.name in _WITHOUT_TLS:
                plain.sendall(_HEALTH_REQUEST)
                return bool(plain.recv(1))
            context = ssl.create_default_context(cafile=str(self.bundle))
            with context.wrap_socket(plain, server_hostname=host) as sock:
                sock.sendall(_HEALTH_REQUEST)
                return bool(sock.recv(1))
        return False

    def refuses_on_control(self) -> bool:
        """Return whether its port refuses connections."""
        try:
            self.supervisor.dial(*_PORTS[self.name], _ANSWER_LIMIT_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    def reached_from_control_plane(self) -> bool:
        """Return whether it answers."""
        return self.answers_on_control()

    def reaches_control_plane(self) -> bool:
        """Return whether it answers."""
        return self.answers_on_control()

    def serves_kubelet(self) -> bool:
        """Return whether it does its work: it has no kubelet.

        A controller manager answers for a second before its controllers run, and ends if the API server
        restarts in that second.
        """
        try:
            if self.name == "kube-controller-manager":
                return _ZONE_SIZE_METRIC in self.api.text_at(f"{MANAGER}/metrics")
            if self.name in ("kube-apiserver", CONTROL_PLANE):
                return bool(self.api.text("/readyz"))
        except ApiError:
            return False
        return self.answers_on_control()

    def kubelet_configuration(self) -> Mapping[str, Json]:
        """Raise MachineError: it has no kubelet."""
        raise MachineError(f"{self.name} has no kubelet")

    def close(self) -> None:
        """Do nothing: it keeps no connection open."""

    def _status(self) -> Mapping[str, Json]:
        status: Mapping[str, Json] = self.supervisor.status()["services"][self.name]
        return status
