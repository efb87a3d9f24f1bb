"""Services of a node: stopped, added, and kube-proxy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.faults.fault import Fault, answer_of, has_booted, output_of, succeeds
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.cluster import SERVICE_ADDRESS

KUBELET = "kubelet.service"
_STOP_TIMEOUT_S = 120.0
"""systemd kills a unit that does not end by itself after 90 s (DefaultTimeoutStopSec=)."""
_START_TIMEOUT_S = 100
"""How long a script may take to report that it is in effect: a busy machine starts few processes a second."""
_START_STOPPED = """
systemctl reset-failed "$0" 2>/dev/null
systemctl start "$0"
"""
# Kubelet and runtime have priority: each service has a weight of 100.
_START = f"""
systemctl --quiet is-active "$0" || systemd-run --quiet --collect --expand-environment=no --unit="$0" \\
    --service-type="$2" --property=NotifyAccess=all --property=TimeoutStartSec={_START_TIMEOUT_S} \\
    --property=TasksMax=infinity --property=CPUWeight=20 sh -c "$1"
"""
# Stopping a missing unit fails; the probes ask the kernel whether it is gone.
_STOP = """
systemctl stop "$0" 2>/dev/null
systemctl reset-failed "$0" 2>/dev/null
true
"""
READY = "systemd-notify --ready"
"""The command by which a script reports that it is in effect; systemd-run waits for it (Type=notify)."""
_UNIT_NAME = re.compile(r"^nodeproof-up-([0-9a-f]{8})\.service\b", re.MULTILINE)
HEALTH_PORT = 10256
"""The port of kube-proxy's health check (pkg/proxy/apis/config/v1alpha1/defaults.go)."""
_TABLE = "kube-proxy"
"""The name of kube-proxy's tables, in both families (pkg/proxy/nftables/proxier.go, `kubeProxyTable`)."""
_PROXY = "kube-proxy.service"
_PROXY_FILE = re.compile(r"^/run/nodeproof-kube-proxy-([0-9a-f]{8})$", re.MULTILINE)
# Adding the table first makes the deletion succeed if it does not exist.
_FORGET = f"""
for family in ip ip6; do nft "add table $family {_TABLE}; delete table $family {_TABLE}" || exit 1; done
rm -f "$0"
"""
_CONNECT_TIMEOUT_S = 2
_CONNECT = f"timeout {_CONNECT_TIMEOUT_S} bash -c 'exec 3<>\"/dev/tcp/$0/$1\"'"
_SERVES = f'{_CONNECT} 127.0.0.1 "$2" && {_CONNECT} "$0" "$1"'
_IS_REMOVED = f"""
{_CONNECT} 127.0.0.1 "$2" && exit 1
nft list tables | grep -q ' {_TABLE}$' && exit 1
{_CONNECT} "$0" "$1" && exit 1
exit 0
"""


@dataclass(frozen=True)
class UnitDown(Fault):
    """Stop of `unit` on `node`; healing starts it. Any but the kubelet's needs the feature `systemd`.

    The fault ends with a power cycle, which starts every unit.
    """

    name = "unit-down"
    ends_with_power = True
    ends_components = True
    timeout_s = _STOP_TIMEOUT_S
    unit: str = KUBELET

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that starts the unit, running or not."""
        return ["sh", "-c", _START_STOPPED, self.unit]

    def available(self, machine: Shell) -> str:
        """Require a unit that is running."""
        state = self._state(machine)
        return "" if state == "active" else f"{self.unit} of {self.node} is {state}"

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["systemctl", "stop", self.unit])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the unit is stopped; for the kubelet, whether its port is closed."""
        if self.unit == KUBELET:
            return machine.answers_on_control() and not machine.serves_kubelet()
        return self._state(machine) in ("inactive", "failed")

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the unit runs; for the kubelet, whether it serves."""
        return has_booted(machine) if self.unit == KUBELET else self._state(machine) == "active"

    def _state(self, machine: Shell) -> str:
        """Return the unit's state. Raises MachineError if the service manager does not say it."""
        completed = answer_of(machine, "systemctl", "is-active", self.unit)
        state = completed.stdout.strip()
        if not state:
            raise MachineError(f"{self.node}: state of {self.unit}: {completed.stderr.strip()}")
        return state


@dataclass(frozen=True)
class UnitUp(Fault):
    """Service on `node` that runs `script` in a shell; healing stops it with all processes that it started.

    A script that runs `systemd-notify --ready` is injected from then on. It ends with a power cycle. The
    script should leave no files, however it ends: they are not removed. Needs the feature `systemd`.
    """

    name = "unit-up"
    ends_with_power = True
    timeout_s = _STOP_TIMEOUT_S
    script: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[UnitUp]:
        command = "systemctl list-units --all --plain --no-legend 'nodeproof-up-*' 2>/dev/null || :"
        listed = output_of(machine, "sh", "-c", command)
        return [cls(machine.name, "", id=fault_id) for fault_id in _UNIT_NAME.findall(listed)]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that stops the unit, running or not."""
        return ["sh", "-c", _STOP, self._unit]

    def available(self, machine: Shell) -> str:
        has_systemd = succeeds(machine, "test", "-d", "/run/systemd/system")
        return "" if has_systemd else f"{self.node} has no systemd"

    def inject(self, machine: Shell) -> None:
        service_type = "notify" if READY in self.script else "exec"
        self.run(machine, ["sh", "-c", _START, self._unit, self.script, service_type])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel has processes of the unit."""
        command = 'cat "/sys/fs/cgroup/system.slice/$0/cgroup.procs" 2>/dev/null || :'
        return bool(output_of(machine, "sh", "-c", command, self._unit).split())

    def is_healed(self, machine: Machine) -> bool:
        return not self.is_injected(machine)

    @property
    def _unit(self) -> str:
        return f"nodeproof-up-{self.id}.service"


@dataclass(frozen=True)
class KubeProxy(Fault):
    """Upstream's kube-proxy on `node`, in nftables mode; healing kills it and deletes its tables.

    The node reaches the API at its Service's address, as the probes check. The fault ends with a power cycle,
    and so do the tables. Needs the feature `proxy`.
    """

    name = "kube-proxy"
    address: str = SERVICE_ADDRESS
    port: int = 443

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[KubeProxy]:
        listed = output_of(machine, "sh", "-c", "ls -d /run/nodeproof-kube-proxy-* 2>/dev/null")
        return [cls(machine.name, id=fault_id) for fault_id in _PROXY_FILE.findall(listed)]

    def available(self, machine: Shell) -> str:
        """Require a node whose host can start a kube-proxy and that has none."""
        if not succeeds(machine, "systemctl", "cat", _PROXY):
            return f"{self.node} cannot have a kube-proxy: its host cannot start one"
        others = self.leftovers_on(machine)
        return f"{self.node} has a kube-proxy already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["touch", self._file])
        self.run(machine, ["systemctl", "start", _PROXY])

    def heal(self, machine: Shell) -> None:
        """Kill kube-proxy and delete its tables, if any; skip a node that is off, which has neither."""
        if machine.is_powered():
            self.run(machine, ["systemctl", "stop", _PROXY])
            self.run(machine, ["sh", "-c", _FORGET, self._file])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether kube-proxy is healthy and the node reaches the Service."""
        return self._succeeds(machine, _SERVES)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether its port is closed, its tables are gone and the Service is unreachable."""
        return self._succeeds(machine, _IS_REMOVED)

    @property
    def _file(self) -> str:
        return f"/run/nodeproof-kube-proxy-{self.id}"

    def _succeeds(self, machine: Machine, script: str) -> bool:
        return succeeds(machine, "sh", "-c", script, self.address, str(self.port), str(HEALTH_PORT))
