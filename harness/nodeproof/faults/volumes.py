"""Volumes: a cluster has a CSI driver, upstream's external-attacher, and some volumes with their claims."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.cluster import is_ready
from nodeproof.model.needs import ATTACHER

Json = Any
DRIVER = "csi.nodeproof.dev"
NAMESPACE = "nodeproof"
LABEL = "nodeproof.dev/volumes"
USER = "csi-attacher"
_SECONDS = 30.0
_FILE = re.compile(rf"^{ATTACHER}/volumes-([0-9a-f]{{8}})\.json$", re.MULTILINE)
DISKS = "disks"
"""The lab's own script (nodeproof/labs/ground/storage.py)."""
_MARK = 'echo "{}" >"$0/$1.new" && mv "$0/$1.new" "$0/$1"'
# The sockets of nodes outlive their driver: a kubelet takes it for gone when they are.
_FORGET = 'sh "$1" forget && rm -rf "$0"/* ../nodes/*/run/node/kubelet/plugins_registry/csi.sock'
# A kubelet that finds no inotify instance free goes on, and never sees a plugin.
_BLIND = """
for registry in ../nodes/*/run/node/kubelet/plugins_registry; do
    [ -d "$registry" ] || continue
    inode=$(printf %x "$(stat -c %i "$registry")")
    grep -qs "^inotify .*ino:$inode " /proc/[0-9]*/fdinfo/* || echo "${registry#../nodes/}" | cut -d/ -f1
done
"""
_EVERYTHING = "persistentvolumes,persistentvolumeclaims,volumeattachments,csinodes,nodes,pods"
_OURS = "csidrivers,clusterroles,clusterrolebindings,persistentvolumes,persistentvolumeclaims"
_RULES: Sequence[Json] = (
    {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["storage.k8s.io"], "resources": ["csinodes"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["storage.k8s.io"],
        "resources": ["volumeattachments"],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments/status"], "verbs": ["patch"]},
)
"""Upstream's: deploy/kubernetes/rbac.yaml of kubernetes-csi/external-attacher v4.12.0."""


@dataclass(frozen=True)
class Volumes:
    """Runs external-attacher, with no more rights than its manifests give it, and the driver
    `csi.nodeproof.dev` over the lab's hypervisor; makes so `many` volumes, each with a claim of its name.
    Healing takes all of it away, with the pods that hold a claim and with what is attached still.

    Where nodes are processes the hypervisor is a table: attaching and detaching are objects and lines of it,
    and no node gets a disk.
    """

    name: ClassVar[str] = "volumes"
    places: ClassVar[Sequence[Place]] = ("component",)
    ends_components: ClassVar[bool] = False
    id: str
    many: int = 1
    node: str = ATTACHER

    @property
    def claims(self) -> Sequence[str]:
        """The names of the claims, and of the volumes."""
        return [f"volume-{self.id}-{number}" for number in range(self.many)]

    @property
    def harms(self) -> Sequence[str]:
        """No node is lost."""
        return ()

    @property
    def undo(self) -> Sequence[str]:
        """Only its host can end it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "many": self.many, "node": self.node}

    def available(self, machine: Shell) -> str:
        """A cluster of a lab that can have volumes and has none, whose kubelets see plugins that come."""
        argv = ["find", self.node, "-maxdepth", "1", "-name", "*.json"]
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            return f"the lab does not know {self.node}"
        if done.stdout.strip() or machine.is_powered():
            return f"there are volumes already: {done.stdout.strip() or f'{self.node} runs'}"
        blind = self._run(machine, ["sh", "-c", _BLIND]).split()
        if blind:
            said = "no inotify instance was free when they started: `nodeproof doctor` says how to have more"
            return f"kubelets of {', '.join(blind)} watch for no plugins; {said}"
        found = self._found(machine)
        odd = sorted(_ready(found) - _drivers(found).keys())
        return f"no CSINode of {', '.join(odd)}: restart its kubelet, which makes one" if odd else ""

    def inject(self, machine: Shell) -> None:
        """Make its objects and start it."""
        handles = [handle(claim) for claim in self.claims]
        self._run(machine, ["sh", "-c", _MARK, self.node, f"volumes-{self.id}.json"])
        self._run(machine, ["sh", DISKS, "create", _SIZE, *handles])
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(self._objects())})
        self._run(machine, ["kubectl", "apply", "--filename=-"], listed)
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Take away who holds a claim, end it, and take away what is left, there or not."""
        for pod in self._holding(self._found(machine)):
            self._remove(machine, "pod", pod, "--force", "--grace-period=0")
        machine.power("off")
        self._run(machine, ["sh", "-c", _FORGET, self.node, DISKS])
        self._remove(machine, _OURS, f"--selector={LABEL}={self.id}")
        found = self._found(machine)
        # Their finalizers are those of who runs no more, or would wait for these.
        for kind, name in self._left(found):
            self._remove(machine, kind, name)
            self._patch(machine, kind, name, {"metadata": {"finalizers": None}})
        # A kubelet that was started anew meanwhile may not have seen it.
        for node, drivers in _drivers(found).items():
            others = [each for each in drivers if each["name"] != DRIVER]
            if others != drivers:
                self._patch(machine, "csinode", node, {"spec": {"drivers": others}})

    def is_injected(self, machine: Machine) -> bool:
        """It answers, which it does once its driver has answered it; every kubelet that is well knows the
        driver; every claim is bound.
        """
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        found = self._found(machine)
        bound = {_name(item) for item in _of(found, "PersistentVolumeClaim") if _phase(item) == "Bound"}
        return bound >= {*self.claims} and _ready(found) <= _knowing(found)

    def is_healed(self, machine: Machine) -> bool:
        """Nobody listens where it served, nothing of it is left, and no node has its driver."""
        if machine.is_powered() or not machine.refuses_on_control():
            return False
        found = self._found(machine)
        return not self._left(found) and not _knowing(found)

    def _objects(self) -> Iterator[Json]:
        meta = {"labels": {LABEL: self.id}}
        role = f"nodeproof-{ATTACHER}"
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {**meta, "name": DRIVER},
            "spec": {"attachRequired": True, "podInfoOnMount": False, "fsGroupPolicy": "None"},
        }
        rbac = "rbac.authorization.k8s.io"
        yield {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {**meta, "name": role},
            "rules": list(_RULES),
        }
        yield {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {**meta, "name": role},
            "subjects": [{"kind": "User", "name": USER, "apiGroup": rbac}],
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": rbac},
        }
        for claim in self.claims:
            yield _volume(claim, meta)
            yield _claim(claim, meta)

    def _found(self, machine: Shell) -> Sequence[Json]:
        """What there is of whatever this may be about."""
        argv = ["kubectl", "get", _EVERYTHING, f"--namespace={NAMESPACE}", "--output=json"]
        return list(json.loads(self._run(machine, argv))["items"])

    def _holding(self, found: Sequence[Json]) -> list[str]:
        """The pods that hold one of the claims."""
        claims = {_name(item) for item in _of(found, "PersistentVolumeClaim") if self._is_ours(item)}
        return [_name(item) for item in _of(found, "Pod") if {*_claims_of(item)} & claims]

    def _left(self, found: Sequence[Json]) -> list[tuple[str, str]]:
        """Kind and name of what is there of it and has finalizers of others."""
        attached = [item for item in _of(found, "VolumeAttachment") if item["spec"]["attacher"] == DRIVER]
        kinds = ("PersistentVolumeClaim", "PersistentVolume")
        ours = [item for kind in kinds for item in _of(found, kind) if self._is_ours(item)]
        return [(item["kind"].lower(), _name(item)) for item in (*attached, *ours)]

    def _is_ours(self, item: Json) -> bool:
        return (item["metadata"].get("labels") or {}).get(LABEL) == self.id

    def _remove(self, machine: Shell, what: str, *named: str) -> None:
        argv = ["kubectl", "delete", what, *named, f"--namespace={NAMESPACE}"]
        self._run(machine, [*argv, "--ignore-not-found", "--wait=false"])

    def _patch(self, machine: Shell, kind: str, name: str, body: Json) -> None:
        argv = ["kubectl", "patch", kind, name, f"--namespace={NAMESPACE}", "--type=merge"]
        self._run(machine, [*argv, f"--patch={json.dumps(body)}"], may_lack=True)

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "", may_lack: bool = False) -> str:
        done = machine.run(argv, deadline_s=_SECONDS, stdin=stdin)
        if done.status != 0 and not (may_lack and "NotFound" in done.stderr):
            raise MachineError(f"{self.node}: {argv[0]} {argv[1]}: {done.stderr.strip()}")
        return done.stdout


def handle(claim: str) -> str:
    """What the driver knows a claim's volume by (`volume_id` in infra/csi/hypervisor.py)."""
    return f"np-{hashlib.sha256(claim.encode()).hexdigest()[:17]}"


def attachment(claim: str, node: str) -> str:
    """The name of the VolumeAttachment of a claim's volume to a node.

    Source: getAttachmentName in pkg/volume/csi/csi_attacher.go.
    """
    return f"csi-{hashlib.sha256(f'{handle(claim)}{DRIVER}{node}'.encode()).hexdigest()}"


def volumes_on(machine: Shell) -> list[Volumes]:
    """The volumes whose marks a control plane has; of how many they were made makes no difference to what is
    left of them. Raises MachineError.
    """
    argv = ["find", ATTACHER, "-maxdepth", "1", "-name", "volumes-*.json"]
    listed = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
    return [Volumes(found) for found in _FILE.findall(listed.stdout)]


def _volume(name: str, meta: Mapping[str, Json]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {**meta, "name": name},
        "spec": {
            **_SIZED,
            "capacity": {"storage": _SIZE},
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": handle(name)},
            "claimRef": {"namespace": NAMESPACE, "name": name},
        },
    }


def _claim(name: str, meta: Mapping[str, Json]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**meta, "name": name, "namespace": NAMESPACE},
        "spec": {**_SIZED, "resources": {"requests": {"storage": _SIZE}}, "volumeName": name},
    }


_SIZE = str(16 << 20)
_SIZED: Mapping[str, Json] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}


def _of(found: Sequence[Json], kind: str) -> Iterator[Json]:
    return (item for item in found if item["kind"] == kind)


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _phase(item: Json) -> str:
    return str(item["status"].get("phase"))


def _claims_of(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        yield str((volume.get("persistentVolumeClaim") or {}).get("claimName"))


def _ready(found: Sequence[Json]) -> set[str]:
    return {_name(item) for item in _of(found, "Node") if is_ready(item)}


def _knowing(found: Sequence[Json]) -> set[str]:
    """The nodes that have the driver."""
    return {node for node, known in _drivers(found).items() if any(each["name"] == DRIVER for each in known)}


def _drivers(found: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
    return {_name(item): item["spec"].get("drivers") or [] for item in _of(found, "CSINode")}
