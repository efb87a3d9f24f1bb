"""A node of somebody's own cluster: commands over ssh(1), and its kubelet as the API server reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz
from nodeproof.cluster.resources import node
from nodeproof.existing.power import Power
from nodeproof.faults.fault import answer_of, succeeds
from nodeproof.machines.machine import STATE_FOLDER, CommandResult, MachineError, PowerAction, Shell
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.problem import Problem
from nodeproof.waiting import wait_until

Json = Any
BOOT_TIMEOUT_S = 600.0
"""How long a machine may take from power to SSH (s): the firmware of a server takes minutes."""
_CONNECT_TIMEOUT_S = 3
_BOOT_PERIOD_S = 1.0
_CONNECT = f'timeout {_CONNECT_TIMEOUT_S} bash -c \'exec 3<>"/dev/tcp/$0/$1"\' "$0" "$1"'
_NOT_REACHED = "error trying to reach service"
"""What the API server answers in place of a kubelet (apimachinery/pkg/util/proxy/upgradeaware.go)."""
_REFUSED = "connection refused"


class ClusterMachine:
    """A node (a `Machine`) with the power driver of its inventory, if any.

    The probes of its kubelet use the API server's proxy.
    """

    state_folder = STATE_FOLDER

    def __init__(
        self,
        ssh: OpenSsh,
        api: Api,
        data_address: str,
        api_endpoint: tuple[str, int],
        power: Power | None = None,
    ) -> None:
        self.name, self._power = ssh.host, power
        self.data_address = data_address
        self.control_plane_address, self._api_port = api_endpoint
        self._ssh, self._api = ssh, api

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        return self._ssh.run(argv, timeout_s=timeout_s, stdin=stdin)

    def power(self, action: PowerAction) -> None:
        """Let its power driver perform `off` or `on`, and wait for SSH after `on`. Raises MachineError."""
        if self._power is None or action not in ("off", "on"):
            self._refuse(f"no power driver for {action}")
        self._power.perform(action, self.name)
        if action == "on":
            wait_until(self.answers_on_control, BOOT_TIMEOUT_S, _BOOT_PERIOD_S)

    def beside(self, name: str) -> Shell:
        """Raise MachineError: a node knows no other machine."""
        self._refuse(f"it knows no machine {name}")

    def _refuse(self, reason: str) -> NoReturn:
        raise MachineError(f"{self.name}: {reason}")

    def boot_id(self) -> str:
        return answer_of(self, "cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def is_powered(self) -> bool:
        """Return whether it has power: it answers, or its driver says so; without one, nothing cuts it off.

        A driver that fails or hangs must not delay the healing of another fault.
        """
        return self._power is None or self.answers_on_control() or self._power.is_on(self.name)

    def answers_on_control(self) -> bool:
        """Return whether it runs a command over SSH."""
        try:
            return succeeds(self, "true")
        except MachineError:
            return False

    def refuses_on_control(self) -> bool:
        """Return False: behind a jump host, nobody sees how it refuses."""
        return False

    def reached_from_control_plane(self) -> bool:
        return self._ask_kubelet() != "silent"

    def serves_kubelet(self) -> bool:
        return self._ask_kubelet() == "served"

    def reaches_control_plane(self) -> bool:
        """Return whether it can connect to an API server."""
        return succeeds(self, "sh", "-c", _CONNECT, self.control_plane_address, str(self._api_port))

    def kubelet_configuration(self) -> Mapping[str, Json]:
        try:
            return kubelet_configz(self._api, self.name)
        except (ApiError, Problem) as error:
            raise MachineError(f"{self.name}: /configz: {error}") from error

    def close(self) -> None:
        """Do nothing: each command has a connection of its own."""

    def _ask_kubelet(self) -> Literal["served", "refused", "silent"]:
        """Return how its kubelet answers the API server.

        Raises MachineError if it may not ask, or the API server answers for itself: that shows no kubelet.
        """
        try:
            self._api.text(f"{node(self.name)}/proxy/healthz")
        except ApiError as error:
            if error.status == 0 and self._api_answers():
                return "silent"
            if _NOT_REACHED not in str(error):
                raise MachineError(f"{self.name}: no answer about its kubelet: {error}") from error
            return "refused" if _REFUSED in str(error) else "silent"
        return "served"

    def _api_answers(self) -> bool:
        """Return whether the API server answers for itself.

        It notices late that a connection to a kubelet is dead (net/http2, ReadIdleTimeout).
        """
        try:
            self._api.text("/version")
        except ApiError:
            return False
        return True
