"""Kube-proxy: a node has one, and reaches Services, while the fault lasts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
HEALTH_PORT = 10256
"""The port of kube-proxy's health check (pkg/proxy/apis/config/v1alpha1/defaults.go)."""
_TABLE = "kube-proxy"
"""The name of kube-proxy's tables, in both families (pkg/proxy/nftables/proxier.go, `kubeProxyTable`)."""
_HOME = "/run/node"
_FILE = re.compile(r"^kube-proxy-([0-9a-f]{8})$", re.MULTILINE)
# Adding the table first makes the deletion succeed if it does not exist.
_FORGET = f"""
for family in ip ip6; do nft "add table $family {_TABLE}; delete table $family {_TABLE}" || exit 1; done
rm -f "$0"
"""
_CONNECT_TIMEOUT_S = 2
_CONNECT = f"timeout {_CONNECT_TIMEOUT_S} bash -c 'exec 3<>\"/dev/tcp/$0/$1\"'"
_SERVES = f'{_CONNECT} 127.0.0.1 "$2" && {_CONNECT} "$0" "$1"'
_IS_GONE = f"""
{_CONNECT} 127.0.0.1 "$2" && exit 1
nft list tables | grep -q ' {_TABLE}$' && exit 1
{_CONNECT} "$0" "$1" && exit 1
exit 0
"""


@dataclass(frozen=True)
class KubeProxy:
    """Upstream's kube-proxy beside the kubelet of `node`, in nftables mode; healing kills it.

    Healing also deletes its tables: that is the state of a node without a kube-proxy.

    `address` and `port` are those of a Service with endpoints; the probes check whether the node reaches it.
    The fault ends with a power cycle, and so do the tables.
    """

    name: ClassVar[str] = "kube-proxy"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    address: str = ""
    port: int = 443

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: only the machine's host can stop it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        service = {"address": self.address, "port": self.port}
        return {"fault": self.name, "id": self.id, "node": self.node, **service}

    def available(self, machine: Shell) -> str:
        """Require a node whose host can start a kube-proxy and that has none."""
        if machine.run(["test", "-d", _HOME], deadline_s=COMMAND_LIMIT_S).status != 0:
            return f"{self.node} cannot have a kube-proxy: its host cannot start one"
        others = kube_proxies_on(machine)
        return f"{self.node} has a kube-proxy already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        """Create the fault's file and start kube-proxy."""
        self._run(machine, ["touch", self._file])
        machine.power("proxy-on")

    def heal(self, machine: Shell) -> None:
        """Kill kube-proxy and delete its tables, if any; skip a node that is off, which has neither."""
        if not machine.is_powered():
            return
        machine.power("proxy-off")
        self._run(machine, ["sh", "-c", _FORGET, self._file])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether kube-proxy is healthy and the node reaches the Service."""
        return self._succeeds(machine, _SERVES)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether its port is closed, its tables are gone and the Service is unreachable."""
        return self._succeeds(machine, _IS_GONE)

    @property
    def _file(self) -> str:
        return f"{_HOME}/kube-proxy-{self.id}"

    def _succeeds(self, machine: Machine, script: str) -> bool:
        argv = ["sh", "-c", script, self.address, str(self.port), str(HEALTH_PORT)]
        return machine.run(argv, deadline_s=COMMAND_LIMIT_S).status == 0

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: kube-proxy: {completed.stderr.strip()}")


def kube_proxies_on(machine: Shell) -> list[KubeProxy]:
    """Return the faults whose files are on a machine. Raises MachineError."""
    listed = machine.run(["sh", "-c", f"ls {_HOME} 2>/dev/null"], deadline_s=COMMAND_LIMIT_S).stdout
    return [KubeProxy(fault_id, machine.name) for fault_id in _FILE.findall(listed)]
