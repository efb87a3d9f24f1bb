"""The machines of a kubeadm cluster: the libvirt lab's guests, on which kubeadm runs `init` and `join`.

The control plane is a guest of its own behind the lab's load balancer, and none of the lab's nodes. kubeadm
finds the lab's certificate authority on it and uses it, so the lab's credentials are valid in the cluster.
`pki/admin.conf`, `pki/ssh_config` and `pki/known_hosts` of the lab's folder are what its owner would have.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from nodeproof.artifacts import image
from nodeproof.disk import write_private
from nodeproof.labs.base.mounts import logs_in
from nodeproof.labs.base.network import forward, ip_batch
from nodeproof.labs.base.nodes import NodeEnvironment, RunningNode, kubelet_flags
from nodeproof.labs.base.processes import STEP
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT, NodeSpec, Shape
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.nodes import GuestNodes
from nodeproof.machines.machine import CommandResult

CONTROL_PLANE_MIB = 2560
CONTROL_PLANE = NodeSpec("cp-1", 199, "zone-a", shape=Shape(CONTROL_PLANE_MIB, cpus=2))
"""The machine of the control plane, beyond the slots of nodes; kubeadm wants two processors and 1700 MB."""
_INIT_TIMEOUT_S, _JOIN_TIMEOUT_S, _COMMAND_TIMEOUT_S = 900.0, 420.0, 60.0
_WAITS = ("controlPlaneComponentHealthCheck", "kubeletHealthCheck", "kubernetesAPICall")
_WAIT = "10m0s"
"""How long kubeadm waits: an emulated API server needs longer than the minute of an API call, by default."""
_LOG_LINES = 20
_CONFIG = "root/kubeadm.yaml"
_POD_NETWORK = "etc/cni/net.d/10-nodeproof.conflist"
_IMAGE_PODS = "10.85.0.0/24"
"""The pods of a machine whose seed does not set them (`infra/image`)."""
_SSH_CONFIG = """\
Host *
  User admin
  IdentityFile {pki}/ssh
  IdentitiesOnly yes
  UserKnownHostsFile {pki}/known_hosts
  StrictHostKeyChecking yes
  ProxyCommand {python} -P -m nodeproof.labs.base.wire {socket} %h %p
"""


class KubeadmNodes(GuestNodes):
    """The nodes of one cluster, and the machine of its control plane."""

    def __init__(self, environment: NodeEnvironment) -> None:
        super().__init__(environment)
        self._join_command: Sequence[str] = ()

    def prepare(self) -> None:
        """Start the hypervisor and the machine of the control plane.

        Raises Problem, OutsideError, CommandFailed.
        """
        super().prepare()
        # The lab routes between the pods of its nodes, as a cloud would.
        forward()
        self.join(CONTROL_PLANE)

    def api_servers(self) -> Sequence[str]:
        return (CONTROL_PLANE.data_address,)

    def start_control_plane(self) -> None:
        """Run `kubeadm init`. Raises Problem, MachineError."""
        name = CONTROL_PLANE.name
        self.wait_up(name)
        self._events.write(STEP, text=f"{name} is up; kubeadm init: {_INIT_TIMEOUT_S / 60:g} min at most")
        init = ["kubeadm", "init", f"--config=/{_CONFIG}", "--skip-token-print"]
        self._log_output(name, self._run(name, init, _INIT_TIMEOUT_S))
        join = self._run(name, ["kubeadm", "token", "create", "--print-join-command"], _COMMAND_TIMEOUT_S)
        self._join_command = shlex.split(join.stdout)
        admin = self._run(name, ["cat", "/etc/kubernetes/admin.conf"], _COMMAND_TIMEOUT_S)
        self._write_owners_file("admin.conf", admin.stdout)

    def all(self) -> list[RunningNode]:
        """Return every node, on or off, without the control plane."""
        return [node for node in super().all() if node.spec.name != CONTROL_PLANE.name]

    def start_kubelet(self, name: str) -> None:
        """Run `kubeadm join` on a node once it is up. Raises Problem, MachineError."""
        self.wait_up(name)
        self._events.write(STEP, text=f"{name} is up; kubeadm join: {_JOIN_TIMEOUT_S / 60:g} min at most")
        self._log_output(name, self._run(name, self._join_command, _JOIN_TIMEOUT_S))
        self._write_ssh_files()

    def _run(self, name: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """Return the result of a command on a machine.

        Raises Problem with its last lines if it fails, MachineError if it does not end.
        """
        completed = self.shell(name, threading.Lock()).run(argv, timeout_s=timeout_s)
        if completed.status:
            lines = f"{completed.stdout}\n{completed.stderr}".strip().splitlines()
            message = f"{shlex.join(argv[:2])} on {name} ended with {completed.status}"
            raise self._problem(message, "its last lines follow", "\n".join(lines[-_LOG_LINES:]))
        return completed

    def _log_output(self, name: str, completed: CommandResult) -> None:
        """Log what kubeadm printed, which contains no credential."""
        with (logs_in(self._memory) / f"kubeadm-{name}.log").open("a") as log:
            print(completed.stdout, completed.stderr, sep="\n", file=log)

    def _make_seed(self, home: Path, spec: NodeSpec) -> str:
        root = home / "seed" / "root"
        pods = (image.recipe_dir() / "files" / _POD_NETWORK).read_text()
        files = {
            _POD_NETWORK: pods.replace(_IMAGE_PODS, _pods_of(spec)),
            "etc/default/kubelet": f'KUBELET_EXTRA_ARGS="{" ".join(kubelet_flags(self._lab, spec))}"\n',
            # CoreDNS forwards to it and refuses an empty file. Nobody listens there: no name is outside.
            "etc/resolv.conf": f"nameserver {API_ADDRESS}\n",
            "home/admin/.ssh/authorized_keys": (self._lab.dir / "pki" / "ssh.pub").read_text(),
        }
        if spec.name == CONTROL_PLANE.name:
            files[_CONFIG] = init_configuration(self._lab.kubernetes_version, spec)
            self._authority.write_pair(root / "etc/kubernetes/pki")
        seed.write_files(root, files)
        return seed.make_identity(home, self._seed(spec.name), self._seed_of(spec))

    def _make(self, spec: NodeSpec) -> None:
        super()._make(spec)
        ip_batch([f"route replace {_pods_of(spec)} via {spec.data_address} dev data"])

    def _unmake(self, name: str) -> None:
        ip_batch([f"route del {_pods_of(self._specs[name])}"])
        super()._unmake(name)

    def _write_ssh_files(self) -> None:
        """Write ssh_config and known_hosts of all machines. Raises OSError."""
        pki = self._lab.dir / "pki"
        specs = list(self._specs.values())
        hosts = [f"Host {spec.name}\n  HostName {spec.control_address}\n" for spec in specs]
        keys = {spec.control_address: (pki / f"{spec.name}.hostkey").read_text() for spec in specs}
        everywhere = _SSH_CONFIG.format(
            pki=pki, python=shlex.quote(sys.executable), socket=self._lab.dir / "s"
        )
        self._write_owners_file("ssh_config", "".join((*hosts, everywhere)))
        self._write_owners_file("known_hosts", "".join(f"{address} {key}" for address, key in keys.items()))

    def _write_owners_file(self, name: str, text: str) -> None:
        write_private(self._lab.dir / "pki" / name, text.encode())


def init_configuration(version: str, spec: NodeSpec) -> str:
    """Return the configuration of `kubeadm init` (JSON documents, which are YAML).

    The API has the address of the lab's load balancer; 127.0.0.1 is for `nodeproof proxy`.
    """
    api = "kubeadm.k8s.io/v1beta4"
    documents = (
        {
            "apiVersion": api,
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": spec.data_address, "bindPort": API_PORT},
            "timeouts": dict.fromkeys(_WAITS, _WAIT),
        },
        {
            "apiVersion": api,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version,
            "controlPlaneEndpoint": f"{API_ADDRESS}:{API_PORT}",
            "apiServer": {"certSANs": ["127.0.0.1"]},
        },
    )
    return "---\n".join(f"{json.dumps(document)}\n" for document in documents)


def _pods_of(spec: NodeSpec) -> str:
    """Return the addresses of a machine's pods."""
    return f"10.85.{spec.slot}.0/24"
