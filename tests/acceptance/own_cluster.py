"""A lab as a user's own cluster: an inventory, and nodes that have timers and show flags as k3s does."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from nodeproof.cluster.resources import node
from nodeproof.existing.marks import ANNOTATION
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import checked
from nodeproof.model.pattern import Json
from tests.acceptance.command import TIMEOUT_S, CompletedCommand, nodeproof

INVENTORY, FUTURE = "cluster.yaml", "2099-01-31T18:00:00+00:00"
_DIAL = """
import pathlib, socket, sys
from nodeproof.labs.base.wire import SupervisorClient
connection = SupervisorClient(pathlib.Path(sys.argv[1])).dial(sys.argv[2], 22, 5)
socket.send_fds(socket.socket(fileno=1), [bytes(1)], [connection.fileno()])
"""
"""A ProxyCommand that passes its connection on to ssh (ssh_config(5), ProxyUseFdpass)."""


@dataclass(frozen=True)
class OwnCluster:
    """A lab reached by the inventory and the SSH files of a folder; commands run in this folder."""

    lab: LabHandle
    folder: Path
    kubeconfig: Path

    @property
    def names(self) -> list[str]:
        """The names of its nodes."""
        return sorted(self.lab.fleet.node_names())

    def uid(self) -> str:
        """Return the UID that an inventory names."""
        return str(self.lab.cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])

    def write(self, nodes: Mapping[str, Json], kubeconfig: Path | None = None, **cluster: str) -> None:
        """Write an inventory of these nodes."""
        path = kubeconfig or self.kubeconfig
        context = yaml.safe_load(path.read_text())["current-context"]
        content = {
            "cluster": {"kubeconfig": str(path), "context": context, "uid": self.uid(), **cluster},
            "ssh": {"config": "ssh_config", "known_hosts": "known_hosts"},
            "nodes": nodes,
        }
        (self.folder / INVENTORY).write_text(json.dumps(content))

    def add(self, **entries: Json) -> None:
        """Add entries to the inventory, or replace them."""
        path = self.folder / INVENTORY
        path.write_text(json.dumps(json.loads(path.read_text()) | entries))

    def addresses(self) -> dict[str, str]:
        """Return the address at which ssh reaches each node."""
        return {entry.name: entry.control_address for entry in self.lab.fleet.nodes()}

    def write_ssh_files(self, address_of: Mapping[str, str]) -> None:
        """Write an ssh_config and known_hosts by which ssh reaches each node at an address."""
        lab, program = self.lab, self.folder / "dial.py"
        program.write_text(_DIAL)
        dial = f"ProxyCommand {sys.executable} {program} {lab.dir / 's'} %h"
        everywhere = ["User root", f"IdentityFile {lab.dir / 'pki' / 'ssh'}", "ProxyUseFdpass yes", dial]
        hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in address_of.items())
        hosts += "Host *\n" + "".join(f"  {line}\n" for line in everywhere)
        (self.folder / "ssh_config").write_text(hosts)
        keys = {
            address: (lab.dir / "pki" / f"{name}.hostkey").read_text()
            for name, address in self.addresses().items()
        }
        known_hosts = "".join(f"{address} {key}" for address, key in keys.items())
        (self.folder / "known_hosts").write_text(known_hosts)

    def nodeproof(
        self,
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> CompletedCommand:
        """Run a command of nodeproof with the inventory and more environment variables."""
        argv = (command, "--cluster", INVENTORY, *arguments)
        return nodeproof(*argv, cwd=self.folder, env=env, timeout_s=timeout_s)

    def mark(self, *names: str, until: str = FUTURE) -> None:
        """Mark nodes."""
        process = self.nodeproof("mark", *names, "--until", until)
        assert process.status == 0, process

    def marks(self) -> Mapping[str, Json]:
        """Return the marks of nodes."""
        nodes = self.lab.cluster.api.get("/api/v1/nodes")["items"]
        texts = {
            entry["metadata"]["name"]: entry["metadata"]["annotations"].get(ANNOTATION) for entry in nodes
        }
        return {name: json.loads(text) for name, text in texts.items() if text}

    def remove_marks(self) -> None:
        """Remove the marks of all nodes."""
        for name in self.names:
            self.lab.cluster.api.patch(node(name), {"metadata": {"annotations": {ANNOTATION: None}}})


_K3S_ARGUMENTS = "k3s.io/node-args"
_TIMEOUT_S = 10.0
UNITS = "/run/test-units"
# A process node has no systemd: its timers are sessions, each with a file that has its process id.
SYSTEMD_RUN = f"""#!/bin/sh
mkdir -p {UNITS}
case $* in *--version) exit 0 ;; esac
while [ "$1" != -- ]; do
    case $1 in --unit=*) unit={UNITS}/${{1#*=}} ;; --on-active=*) after=${{1#*=}} ;; esac
    shift
done
shift
setsid sh -c 'echo $$ >"$0"; sleep "$1"; shift; until "$@"; do sleep 3; done; rm -f "$0"' \\
    "$unit" "${{after%s}}" "$@" </dev/null >/dev/null 2>&1 &
until [ -s "$unit" ]; do sleep 0.05; done
"""
SYSTEMCTL = f"""#!/bin/sh
for last; do :; done
case $* in
    list-units*nodeproof-heal-*)
        cd {UNITS} 2>/dev/null || exit 0
        for unit in $last; do [ ! -e "$unit" ] || echo "$unit loaded"; done ;;
    stop*nodeproof-heal-*)
        shift
        for unit; do kill -- "-$(cat "{UNITS}/$unit")"; rm -f "{UNITS}/$unit"; done ;;
    *) exec /run/node/bin/systemctl.node "$@" ;;
esac
"""
_INSTALL = """
cd /run/node/bin && mkdir -p /run/systemd/system && mv systemctl systemctl.node || exit 1
printf %s "$0" >systemd-run && printf %s "$1" >systemctl && chmod 755 systemd-run systemctl
"""
_REMOVE = """
cd /run/node/bin && mv systemctl.node systemctl && rm -rf systemd-run /run/systemd
"""


_OLD_SYSTEMD_RUN = """#!/bin/sh
case $* in *--expand-environment*) echo "systemd-run: unrecognized option" >&2; exit 1 ;; esac
exec /run/node/bin/systemd-run.new "$@"
"""
_INSTALL_OLD = """
cd /run/node/bin && mv systemd-run systemd-run.new || exit 1
printf %s "$0" >systemd-run && chmod 755 systemd-run
"""
_RESTORE_NEW = "cd /run/node/bin && mv systemd-run.new systemd-run"


@contextmanager
def older_systemd_on(lab: LabHandle, name: str) -> Iterator[None]:
    """Give a node the options of systemd 253 until the context ends."""
    _run(lab, name, _INSTALL_OLD, _OLD_SYSTEMD_RUN)
    try:
        yield
    finally:
        _run(lab, name, _RESTORE_NEW)


@contextmanager
def with_timers_and_flags(lab: LabHandle) -> Iterator[None]:
    """Give the nodes timers, and let a Node show the flags of its control plane, until the context ends."""
    names = lab.fleet.node_names()
    for name in names:
        _run(lab, name, _INSTALL, SYSTEMD_RUN, SYSTEMCTL)
    flags = {"kube-controller-manager": FAST.controller_manager, "kube-apiserver": FAST.api_server}
    arguments = [
        f"--{component}-arg={flag}={value}"
        for component, values in flags.items()
        for flag, value in values.items()
    ]
    _annotate(lab, names[0], json.dumps(["server", *arguments]))
    try:
        yield
    finally:
        _annotate(lab, names[0], None)
        for name in names:
            _run(lab, name, _REMOVE)


def timers_on(lab: LabHandle, name: str) -> list[str]:
    """Return the dead-man's timers that are armed on a node."""
    return _run(lab, name, f"ls {UNITS} 2>/dev/null || :").split()


def _annotate(lab: LabHandle, name: str, value: str | None) -> None:
    lab.cluster.api.patch(node(name), {"metadata": {"annotations": {_K3S_ARGUMENTS: value}}})


def _run(lab: LabHandle, name: str, script: str, *arguments: str) -> str:
    completed = lab.fleet.machine(name).run(["sh", "-c", script, *arguments], timeout_s=_TIMEOUT_S)
    return checked(completed, name)


# Users, each with the rights of one role


_GROUP = "rbac.authorization.k8s.io"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_ROLES, _BINDINGS = f"/apis/{_GROUP}/v1/clusterroles", f"/apis/{_GROUP}/v1/clusterrolebindings"


@contextmanager
def account(served: Path, lab: LabHandle, folder: Path, role: Json) -> Iterator[Path]:
    """Write a kubeconfig of a user who has exactly the rights of this ClusterRole, until the context ends."""
    api, name = lab.cluster.api, role["metadata"]["name"]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role_ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
    created = {
        _ACCOUNTS: {"metadata": {"name": name}},
        _ROLES: role,
        _BINDINGS: {"metadata": {"name": name}, "subjects": [subject], "roleRef": role_ref},
    }
    for path, body in created.items():
        api.create(path, body)
    token = api.create(f"{_ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    yield with_user(served, folder / "kubeconfig", {"token": token})
    for path in created:
        api.delete(f"{path}/{name}")


def with_user(served: Path, path: Path, user: Mapping[str, str], server: str = "") -> Path:
    """Write a kubeconfig with another user, and another server if one is given."""
    content = yaml.safe_load(served.read_text())
    content["users"] = [{"name": entry["name"], "user": dict(user)} for entry in content["users"]]
    for entry in content["clusters"]:
        cluster = entry["cluster"]
        cluster["server"] = server or cluster["server"]
        # The lab's folder is not where the file is read, as in a container.
        authority = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path
