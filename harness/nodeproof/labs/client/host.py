"""The host of a lab's machines: power over them, and a witness of their connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.configuration import kubelet_configz
from nodeproof.labs.ground.wire import SupervisorClient
from nodeproof.machines.machine import MachineError, PowerAction
from nodeproof.model.problem import Problem

Json = Any


class SupervisedHost:
    """Power and witness of one lab's nodes through its supervisor, and their kubelets through its API."""

    def __init__(self, supervisor: SupervisorClient, api: Api) -> None:
        self._supervisor = supervisor
        self._api = api

    def power(self, node_name: str, action: PowerAction) -> None:
        """Do a power action to a node. Raises MachineError."""
        try:
            self._supervisor.power(node_name, action)
        except Problem as problem:
            raise MachineError(problem.line) from problem

    def is_powered(self, node_name: str) -> bool:
        """Return whether the node's first process runs."""
        return any(entry["name"] == node_name and entry["on"] for entry in self._supervisor.status()["nodes"])

    def kubelet_configuration(self, node_name: str) -> Mapping[str, Json]:
        """Return the configuration that the node's kubelet reports. Raises MachineError."""
        try:
            return kubelet_configz(self._api, node_name)
        except (ApiError, Problem) as error:
            raise MachineError(f"{node_name}: /configz: {error}") from error

    def witness_port(self) -> int:
        """Return the port at which the witness listens."""
        return int(self._supervisor.status()["witness_port"])

    def heard(self, token: str) -> bool:
        """Return whether the witness received `token`."""
        return token in self._supervisor.status()["heard"]
