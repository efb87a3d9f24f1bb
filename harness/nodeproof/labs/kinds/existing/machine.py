"""A node of somebody's own cluster: commands over ssh(1), its kubelet by the API server, its power."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz
from nodeproof.cluster.resources import node
from nodeproof.existing.inventory import Inventory
from nodeproof.existing.power import TIMEOUT_S, Power, limited
from nodeproof.faults.fault import COMMAND_TIMEOUT_S, answer_of, output_of, succeeds
from nodeproof.faults.machine import PowerOff
from nodeproof.labs.base.spec import KUBELET_PORT
from nodeproof.machines.machine import (
    STATE_FOLDER,
    CommandResult,
    MachineError,
    PowerAction,
    Shell,
    checked,
)
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.problem import Problem
from nodeproof.safety.deadman import Timer
from nodeproof.waiting import wait_until

Json = Any
BOOT_TIMEOUT_S = 600.0
"""How long a machine may take from power to SSH (s): the firmware of a server takes minutes."""
_BOOT_PERIOD_S = 1.0
_HTTPS_PORT = 443
_ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_OF_API = {"labelSelector": "kubernetes.io/service-name=kubernetes"}
_K3S = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"
"""The kubeconfig of the kubelet in k3s, which is no process of its own, so it shows no flags."""
_SERVERS = f"""
pid=$(ss -Hltnp 'sport = :{KUBELET_PORT}' | grep -o 'pid=[0-9]*' | head -n 1)
file=$(tr '\\0' '\\n' <"/proc/${{pid#pid=}}/cmdline" | sed -n 's/^--kubeconfig=//p; /^--kubeconfig$/{{n;p}}')
grep -Eo 'server"?: *.?https://[][A-Za-z0-9.:/_-]+' "${{file:-{_K3S}}}" | grep -o 'https://.*'
"""
_DIAL = """
while [ "$#" -gt 0 ]; do
    (timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>/dev/null && echo reached) &
    shift 2
done
wait
"""
_NOT_REACHED = "error trying to reach service"
"""What the API server answers in place of a kubelet (apimachinery/pkg/util/proxy/upgradeaware.go)."""
_REFUSED = "connection refused"


class ClusterMachine:
    """A node (a `Machine`) with the power driver of its inventory, if any.

    The probes of its kubelet use the API server's proxy.
    """

    state_folder = STATE_FOLDER

    def __init__(self, ssh: OpenSsh, api: Api, data_address: str, power: Power | None = None) -> None:
        self.name, self.data_address = ssh.host, data_address
        self._ssh, self._api, self._power = ssh, api, power

    @property
    def control_plane_addresses(self) -> Sequence[str]:
        """The addresses of all API servers, and of the server that its kubelet uses, as the node resolves it.

        Raises MachineError for a server at the loopback: a balancer there may connect to an address that is
        not among these, and no probe shows that it does not.
        """
        servers = self._kubelet_servers()
        if not servers:
            self._refuse("no server in the kubeconfig of its kubelet")
        addresses = {address for host, _port in servers for address in self._resolved(host)}
        loopback = sorted(filter(_is_loopback, addresses))
        if loopback:
            self._refuse(
                f"its kubelet uses a balancer at {loopback[0]}, whose connections may not all be cut"
            )
        return sorted(addresses | {address for address, _port in self._endpoints()})

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        return self._ssh.run(argv, timeout_s=timeout_s, stdin=stdin)

    def power(self, action: PowerAction) -> None:
        """Let its power driver perform `off` or `on`, and wait for SSH after `on`.

        Raises:
            MachineError: The driver fails, or does not say that the power is on after `on`.
        """
        if self._power is None or action not in ("off", "on"):
            self._refuse(f"no power driver for {action}")
        self._power.perform(action, self.name)
        if action == "off":
            return
        if not self._power.is_on(self.name):
            self._refuse("its power driver says that the power is still off")
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
        """Return whether it can connect to any API server, at any address."""
        servers = [*self._endpoints(), *self._kubelet_servers()]
        targets = [str(part) for server in servers if not _is_loopback(server[0]) for part in server]
        return "reached" in output_of(self, "sh", "-c", _DIAL, "sh", *targets)

    def kubelet_configuration(self) -> Mapping[str, Json]:
        try:
            return kubelet_configz(self._api, self.name)
        except (ApiError, Problem) as error:
            raise MachineError(f"{self.name}: /configz: {error}") from error

    def close(self) -> None:
        """Do nothing: each command has a connection of its own."""

    def _endpoints(self) -> Sequence[tuple[str, int]]:
        try:
            return api_endpoints(self._api)
        except (ApiError, Problem) as error:
            raise MachineError(f"{self.name}: endpoints of the API: {error}") from error

    def _kubelet_servers(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the API server in the kubeconfig of its kubelet, if any."""
        urls = map(urlsplit, output_of(self, "sh", "-c", _SERVERS).split())
        return [(str(url.hostname), url.port or _HTTPS_PORT) for url in urls]

    def _resolved(self, host: str) -> Sequence[str]:
        completed = self.run(["getent", "ahosts", host], timeout_s=COMMAND_TIMEOUT_S)
        lines = checked(completed, f"{self.name}: no address of {host}").splitlines()
        return [line.split()[0] for line in lines]

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


def api_endpoints(api: Api) -> Sequence[tuple[str, int]]:
    """Return address and port of each API server, as nodes see it. Raises ApiError; Problem if none."""
    endpoints = [
        (str(address), int(port["port"]))
        for entry in api.get(_ENDPOINTS, _OF_API)["items"]
        for endpoint in entry.get("endpoints") or ()
        for address in endpoint["addresses"]
        for port in entry.get("ports") or ()
    ]
    if not endpoints:
        raise Problem("the Service default/kubernetes has no endpoint", "the API", "check the control plane")
    return endpoints


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


@dataclass(frozen=True)
class PowerSwitch:
    """The dead-man's switch of power cuts: timers on hosts of an inventory that keep their power.

    `ssh` is the configuration that reaches the hosts.
    """

    inventory: Inventory
    ssh: Path

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch of a power cut; a `ttl_s` of 0 disarms it. Raises MachineError.

        A timer that cannot be disarmed restores the power once, and then deletes its input.
        """
        if fault["fault"] != PowerOff.name:
            return
        try:
            self._arm(fault, ttl_s)
        except MachineError:
            if ttl_s > 0:
                raise

    def _arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        listed = self.inventory.nodes.get(fault["node"])
        power = listed.power if listed else None
        if power is None or not power.switch:
            raise MachineError(f"{fault['node']}: {self.inventory.path} has no power driver with a switch")
        timer = Timer(OpenSsh(power.switch, self.ssh), power.switch, str(fault["id"]))
        if ttl_s <= 0:
            timer.disarm()
            return
        command = power.command("on", fault["node"])
        timer.arm_with_input(ttl_s, limited(command.argv, TIMEOUT_S["on"]), command.stdin)
