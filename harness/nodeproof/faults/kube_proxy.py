"""Kube-proxy: a node has one, and its Services can be reached, for as long as the fault lasts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
HEALTH_PORT = 10256
"""Where kube-proxy says that it is well (pkg/proxy/apis/config/v1alpha1/defaults.go)."""
_TABLE = "kube-proxy"
"""Where kube-proxy has its rules, in both families (pkg/proxy/nftables/proxier.go, `kubeProxyTable`)."""
_HOME = "/run/node"
_FILE = re.compile(r"^kube-proxy-([0-9a-f]{8})$", re.MULTILINE)
# To add it first makes the deletion of one that is not there succeed.
_FORGET = f"""
for family in ip ip6; do nft "add table $family {_TABLE}; delete table $family {_TABLE}" || exit 1; done
rm -f "$0"
"""
_CONNECT_LIMIT_S = 2
_CONNECT = f"timeout {_CONNECT_LIMIT_S} bash -c 'exec 3<>\"/dev/tcp/$0/$1\"'"
_SERVES = f'{_CONNECT} 127.0.0.1 "$2" && {_CONNECT} "$0" "$1"'
_IS_GONE = f"""
{_CONNECT} 127.0.0.1 "$2" && exit 1
nft list tables | grep -q ' {_TABLE}$' && exit 1
{_CONNECT} "$0" "$1" && exit 1
exit 0
"""


@dataclass(frozen=True)
class KubeProxy:
    """Runs upstream's kube-proxy beside the kubelet of `node`, in nftables mode; healing kills it and flushes
    its tables: that is what a node without a kube-proxy has.

    `address` and `port` are of a Service that has endpoints; whether the node reaches it is what the probes
    look at. It ends with a power cycle, the tables with it.
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
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Only its host can end it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"address": self.address, "port": self.port}
        return {"fault": self.name, "id": self.id, "node": self.node, **told}

    def available(self, machine: Shell) -> str:
        """A node whose host can start one, and that has none."""
        if machine.run(["test", "-d", _HOME], deadline_s=COMMAND_LIMIT_S).status != 0:
            return f"no kube-proxy can be started on {self.node}: its host starts none"
        others = kube_proxies_on(machine)
        return f"{self.node} has a kube-proxy already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        """Leave its name, and start it."""
        self._run(machine, ["touch", self._file])
        machine.power("proxy-on")

    def heal(self, machine: Shell) -> None:
        """Kill it and delete its tables, there or not. On a node that is off there is neither."""
        if not machine.is_powered():
            return
        machine.power("proxy-off")
        self._run(machine, ["sh", "-c", _FORGET, self._file])

    def is_injected(self, machine: Machine) -> bool:
        """It says that it is well, and what it serves is reached from the node."""
        return self._looks(machine, _SERVES)

    def is_healed(self, machine: Machine) -> bool:
        """Nobody listens where it did, it has no tables, and the Service is not reached from the node."""
        return self._looks(machine, _IS_GONE)

    @property
    def _file(self) -> str:
        return f"{_HOME}/kube-proxy-{self.id}"

    def _looks(self, machine: Machine, script: str) -> bool:
        argv = ["sh", "-c", script, self.address, str(self.port), str(HEALTH_PORT)]
        return machine.run(argv, deadline_s=COMMAND_LIMIT_S).status == 0

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: kube-proxy: {done.stderr.strip()}")


def kube_proxies_on(machine: Shell) -> list[KubeProxy]:
    """The kube-proxies whose names a machine has. Raises MachineError."""
    listed = machine.run(["sh", "-c", f"ls {_HOME} 2>/dev/null"], deadline_s=COMMAND_LIMIT_S).stdout
    return [KubeProxy(found, machine.name) for found in _FILE.findall(listed)]
