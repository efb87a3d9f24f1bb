"""Volumes: a cluster has a CSI driver, upstream's external-attacher, and some volumes with PVCs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault, output_of
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.cluster import is_ready
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import Json

DRIVER = "csi.nodeproof.dev"
NAMESPACE = "nodeproof"
LABEL = "nodeproof.dev/volumes"
USER = "csi-attacher"
_FILE = re.compile(rf"^{ATTACHER}/volumes-([0-9a-f]{{8}})\.json$", re.MULTILINE)
DISKS = "disks"
"""The lab's own script (nodeproof/labs/base/control_plane.py)."""
_MARK = 'echo "{}" >"$0/$1.new" && mv "$0/$1.new" "$0/$1"'
# The nodes' sockets outlive their driver: a kubelet unregisters it when they are removed.
_FORGET = 'sh "$1" forget && rm -rf "$0"/* ../nodes/*/run/node/kubelet/plugins_registry/csi.sock'
# A kubelet without a free inotify instance continues, and never sees a plugin.
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
"""Upstream's rules: deploy/kubernetes/rbac.yaml of kubernetes-csi/external-attacher v4.12.0."""


@dataclass(frozen=True)
class Volumes(Fault):
    """CSI driver, external-attacher and `count` volumes with PVCs of their names; healing removes all.

    external-attacher has only the permissions of upstream's manifests; the driver `csi.nodeproof.dev`
    attaches disks through the lab's hypervisor. Healing also removes the pods that use a PVC, and all
    attachments.

    Where nodes are processes the hypervisor is a table: attaching and detaching change objects and lines of
    it, and no node gets a disk.

    Needs the feature `volumes`, and must be declared: `needs(components=(ATTACHER,))`.
    """

    name = "volumes"
    places = ("component",)
    timeout_s = 30.0
    node: str = field(default=ATTACHER, init=False)
    count: int = field(default=1, metadata={"key": "many"})

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Volumes]:
        """Return the faults whose marker files are on a control plane. Raises MachineError.

        Their number of volumes is unknown; healing does not need it.
        """
        listed = output_of(machine, "find", ATTACHER, "-maxdepth", "1", "-name", "volumes-*.json")
        return [cls(id=fault_id) for fault_id in _FILE.findall(listed)]

    @property
    def pvcs(self) -> Sequence[str]:
        """The names of the PVCs, and of their volumes."""
        return [f"volume-{self.id}-{number}" for number in range(self.count)]

    @property
    def affected_nodes(self) -> Sequence[str]:
        return ()

    def available(self, machine: Shell) -> str:
        """Require a lab that can have volumes and has none, and kubelets that watch for plugins."""
        argv = ["find", self.node, "-maxdepth", "1", "-name", "*.json"]
        completed = machine.run(argv, timeout_s=COMMAND_TIMEOUT_S)
        if completed.status != 0:
            return f"the lab does not know {self.node}"
        if completed.stdout.strip() or machine.is_powered():
            return f"there are volumes already: {completed.stdout.strip() or f'{self.node} runs'}"
        blind = self.run(machine, ["sh", "-c", _BLIND]).split()
        if blind:
            hint = "no inotify instance was free when they started: run `nodeproof doctor`"
            return f"kubelets of {', '.join(blind)} do not watch for plugins; {hint}"
        objects = self._all_objects(machine)
        missing = sorted(_ready_nodes(objects) - _drivers(objects).keys())
        return (
            f"no CSINode of {', '.join(missing)}: restart its kubelet, which creates one" if missing else ""
        )

    def inject(self, machine: Shell) -> None:
        """Create the objects and start the attacher."""
        handles = [handle(pvc) for pvc in self.pvcs]
        self.run(machine, ["sh", "-c", _MARK, self.node, f"volumes-{self.id}.json"])
        self.run(machine, ["sh", DISKS, "create", _SIZE, *handles])
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(self._objects())})
        self.run(machine, ["kubectl", "apply", "--filename=-"], listed)
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Remove the pods that use a PVC, stop the attacher, and remove what is left, if anything."""
        for pod in self._pods_with_pvcs(self._all_objects(machine)):
            self._remove(machine, "pod", pod, "--force", "--grace-period=0")
        machine.power("off")
        self.run(machine, ["sh", "-c", _FORGET, self.node, DISKS])
        self._remove(machine, _OURS, f"--selector={LABEL}={self.id}")
        objects = self._all_objects(machine)
        # Their finalizers belong to controllers that no longer run, or that would wait for these objects.
        for kind, name in self._leftovers(objects):
            self._remove(machine, kind, name)
            self._patch(machine, kind, name, {"metadata": {"finalizers": None}})
        # A kubelet that restarted meanwhile may not have noticed.
        for node, drivers in _drivers(objects).items():
            others = [driver for driver in drivers if driver["name"] != DRIVER]
            if others != drivers:
                self._patch(machine, "csinode", node, {"spec": {"drivers": others}})

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the attacher answers, every ready kubelet has the driver and every PVC is bound.

        The attacher answers once its driver has answered it.
        """
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        objects = self._all_objects(machine)
        bound = {
            _name(item) for item in _of_kind(objects, "PersistentVolumeClaim") if _phase(item) == "Bound"
        }
        return bound >= {*self.pvcs} and _ready_nodes(objects) <= _nodes_with_driver(objects)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the attacher's port is closed, no object is left and no node has the driver."""
        if machine.is_powered() or not machine.refuses_on_control():
            return False
        objects = self._all_objects(machine)
        return not self._leftovers(objects) and not _nodes_with_driver(objects)

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
        for pvc in self.pvcs:
            yield _volume(pvc, meta)
            yield _pvc(pvc, meta)

    def _all_objects(self, machine: Shell) -> Sequence[Json]:
        """Return all objects that the fault may involve."""
        argv = ["kubectl", "get", _EVERYTHING, f"--namespace={NAMESPACE}", "--output=json"]
        return list(json.loads(self.run(machine, argv))["items"])

    def _pods_with_pvcs(self, objects: Sequence[Json]) -> list[str]:
        """Return the pods that use one of the PVCs."""
        pvcs = {_name(item) for item in _of_kind(objects, "PersistentVolumeClaim") if self._is_ours(item)}
        return [_name(item) for item in _of_kind(objects, "Pod") if {*_pvcs_of(item)} & pvcs]

    def _leftovers(self, objects: Sequence[Json]) -> list[tuple[str, str]]:
        """Return kind and name of the remaining objects that may have finalizers."""
        attached = [
            item for item in _of_kind(objects, "VolumeAttachment") if item["spec"]["attacher"] == DRIVER
        ]
        kinds = ("PersistentVolumeClaim", "PersistentVolume")
        ours = [item for kind in kinds for item in _of_kind(objects, kind) if self._is_ours(item)]
        return [(item["kind"].lower(), _name(item)) for item in (*attached, *ours)]

    def _is_ours(self, item: Json) -> bool:
        return (item["metadata"].get("labels") or {}).get(LABEL) == self.id

    def _remove(self, machine: Shell, what: str, *named: str) -> None:
        argv = ["kubectl", "delete", what, *named, f"--namespace={NAMESPACE}"]
        self.run(machine, [*argv, "--ignore-not-found", "--wait=false"])

    def _patch(self, machine: Shell, kind: str, name: str, body: Json) -> None:
        argv = ["kubectl", "patch", kind, name, f"--namespace={NAMESPACE}", "--type=merge"]
        try:
            self.run(machine, [*argv, f"--patch={json.dumps(body)}"])
        except MachineError as error:
            if "NotFound" not in str(error):
                raise


def handle(pvc: str) -> str:
    """Return the driver's handle of a PVC's volume (`volume_id` in infra/csi/hypervisor.py)."""
    return f"np-{hashlib.sha256(pvc.encode()).hexdigest()[:17]}"


def attachment(pvc: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a PVC's volume to a node.

    Source: getAttachmentName in pkg/volume/csi/csi_attacher.go.
    """
    return f"csi-{hashlib.sha256(f'{handle(pvc)}{DRIVER}{node}'.encode()).hexdigest()}"


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


def _pvc(name: str, meta: Mapping[str, Json]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**meta, "name": name, "namespace": NAMESPACE},
        "spec": {**_SIZED, "resources": {"requests": {"storage": _SIZE}}, "volumeName": name},
    }


_SIZE = str(16 << 20)
_SIZED: Mapping[str, Json] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}


def _of_kind(objects: Sequence[Json], kind: str) -> Iterator[Json]:
    return (item for item in objects if item["kind"] == kind)


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _phase(item: Json) -> str:
    return str(item["status"].get("phase"))


def _pvcs_of(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        yield str((volume.get("persistentVolumeClaim") or {}).get("claimName"))


def _ready_nodes(objects: Sequence[Json]) -> set[str]:
    return {_name(item) for item in _of_kind(objects, "Node") if is_ready(item)}


def _nodes_with_driver(objects: Sequence[Json]) -> set[str]:
    """Return the nodes that have the driver."""
    return {
        node
        for node, drivers in _drivers(objects).items()
        if any(driver["name"] == DRIVER for driver in drivers)
    }


def _drivers(objects: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
    return {_name(item): item["spec"].get("drivers") or [] for item in _of_kind(objects, "CSINode")}
