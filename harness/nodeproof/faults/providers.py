"""What a cluster gets from its provider: a cloud that reports machines as shut down or gone, and volumes.

A cluster with volumes has a CSI driver, upstream's external-attacher, and some volumes with PVCs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Literal

from nodeproof.faults.api import DeleteNode
from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault, ids_in, output_of
from nodeproof.machines.machine import Machine, MachineError, Shell, checked
from nodeproof.model.cluster import has_taint, is_ready
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.pattern import Json

State = Literal["exists", "shut-down", "gone", "fails"]
"""The provider has no state `fails`: it answers with an error (infra/kubernetes/README.md)."""
STATES: Sequence[State] = ("exists", "shut-down", "gone", "fails")
STARTED = "Initialize"
"""The first call to the cloud, before any controller runs (infra/kubernetes/cloud/provider.go)."""
_SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
_ANSWER = 'cat >"$0.new" && mv "$0.new" "$0"'
_NODE_CONTROLLER_FLAGS = {
    "controllers": "cloud-node-lifecycle-controller,cloud-node-controller",
    "node-status-update-frequency": "2s",
}
"""Flags of a cloud with `initialises_nodes`; the default update period of node addresses is 5 min."""
# The component starts with the flags of each *.json file in its folder; that file is written last.
_INJECT = r"""
cat >"$0.answers.new" && mv "$0.answers.new" "$0.answers" || exit 1
flags="\"nodeproof-calls\": \"$PWD/$0.calls\""
for what in answers addresses; do flags="$flags, \"nodeproof-$what\": \"$PWD/$0.$what\""; done
printf '{%s%s}' "$flags" "$1" >"$0.new" && mv "$0.new" "$0.json"
"""


@dataclass(frozen=True)
class Cloud(Fault):
    """Upstream's cloud-controller-manager over a fake provider; healing stops it and restores its Nodes.

    Healing also removes the taints that the controller added and creates the Nodes that it deleted. The cloud
    must be declared: `needs(components=(CLOUD,))`.

    Attributes:
        answers: The state of each node's machine: `exists` (the default), `shut-down`, `gone`, or `fails` if
            the cloud answers with an error.
        labels: The labels of each Node that it may delete: a running kubelet does not create its Node again.
        initialises_nodes: Whether it also initialises Nodes that wait for a cloud, and updates their
            addresses (`set_cloud_addresses`).
    """

    name = "cloud"
    places = ("component",)
    node: str = field(default=CLOUD, init=False)
    answers: Mapping[str, State]
    labels: Mapping[str, Mapping[str, str]]
    initialises_nodes: bool = field(default=False, kw_only=True, metadata={"key": "sets_up"})

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Cloud]:
        listed = output_of(machine, "find", CLOUD, "-name", "cloud-*.json")
        return [cls({}, {}, id=fault_id) for fault_id in ids_in(listed, rf"{CLOUD}/cloud-ID\.json$")]

    @property
    def affected_nodes(self) -> Sequence[str]:
        """The nodes that the cloud does not report as existing."""
        return tuple(name for name, state in self.answers.items() if state != "exists")

    def available(self, machine: Shell) -> str:
        """Require a cluster without a cloud, valid answers, and labels for each node that has an answer."""
        unknown = {*self.answers.values()} - {*STATES}
        if unknown:
            return f"a machine is one of {', '.join(STATES)}, not {', '.join(sorted(unknown))}"
        unlabelled = [name for name in self.answers if not self.labels.get(name)]
        if unlabelled:
            return f"labels of {', '.join(unlabelled)} are missing"
        completed = machine.run(["find", self.node, "-name", "*.json"], timeout_s=COMMAND_TIMEOUT_S)
        if completed.status != 0:
            return f"the lab does not know {self.node}"
        if completed.stdout.strip() or machine.is_powered():
            return f"there is a cloud already: {completed.stdout.strip() or f'{self.node} runs'}"
        return ""

    def inject(self, machine: Shell) -> None:
        """Write the answers and start the controller manager with them."""
        extra_flags = f", {json.dumps(_NODE_CONTROLLER_FLAGS)[1:-1]}" if self.initialises_nodes else ""
        tainted = json.dumps(self._tainted(machine))
        self.run(machine, ["sh", "-c", _ANSWER, self._tainted_before], tainted)
        self.run(machine, ["sh", "-c", _INJECT, self.path, extra_flags], json.dumps(dict(self.answers)))
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Stop the controller manager, delete its files and taints, and create the Nodes that are missing."""
        machine.power("off")
        # The list of earlier taints is deleted last: a repeated healing needs it.
        for name in self._added_taints(machine):
            self.run(machine, ["kubectl", "taint", "node", name, f"{_SHUT_DOWN}:NoSchedule-"])
        files = ("answers", "addresses", "tainted")
        endings = ("json", "new", *files, *(f"{name}.new" for name in files), "calls")
        self.run(machine, ["rm", "-f", *(f"{self.path}.{ending}" for ending in endings)])
        for name, labels in self.labels.items():
            DeleteNode(name, labels, id=self.id).heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether its process answers and has recorded its first call."""
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        calls = machine.run(["cat", f"{self.path}.calls"], timeout_s=COMMAND_TIMEOUT_S)
        return calls.status == 0 and STARTED in calls.stdout

    def is_healed(self, machine: Machine) -> bool:
        """Return whether nothing listens on its port, and no Node is missing or has a taint that it added."""
        if machine.is_powered() or not machine.refuses_on_control() or self._added_taints(machine):
            return False
        listed = {item["metadata"]["name"] for item in self._nodes(machine)}
        return self.labels.keys() <= listed

    @property
    def path(self) -> str:
        """The path of its files, without their endings."""
        return f"{self.node}/cloud-{self.id}"

    @property
    def _tainted_before(self) -> str:
        return f"{self.path}.tainted"

    def _added_taints(self, machine: Shell) -> Sequence[str]:
        """Return the Nodes that it tainted; none if it never started or is healed."""
        before = machine.run(["cat", self._tainted_before], timeout_s=COMMAND_TIMEOUT_S)
        if before.status != 0:
            return ()
        return sorted({*self._tainted(machine)} - {*json.loads(before.stdout)})

    def _tainted(self, machine: Shell) -> Sequence[str]:
        """Return the Nodes with a cloud's shutdown taint."""
        nodes = self._nodes(machine)
        return [item["metadata"]["name"] for item in nodes if has_taint(item, _SHUT_DOWN, "NoSchedule")]

    def _nodes(self, machine: Shell) -> Sequence[Json]:
        return list(json.loads(self.run(machine, ["kubectl", "get", "nodes", "--output=json"]))["items"])


def cloud_file(machine: Shell, ending: str) -> str:
    """Return the path of a file of the cluster's cloud. Raises MachineError unless it has one cloud."""
    clouds = Cloud.leftovers_on(machine)
    if len(clouds) != 1:
        raise MachineError(f"expected one cloud, found {len(clouds)}")
    return f"{clouds[0].path}.{ending}"


def replace_in_cloud(machine: Shell, what: Literal["answers", "addresses"], content: Json) -> None:
    """Replace all answers of the cluster's cloud, or all node addresses.

    The answers are a `State` for each node; the addresses of each node are objects with `type` and `address`.

    Raises:
        MachineError: The cluster has no cloud.
    """
    argv = ["sh", "-c", _ANSWER, cloud_file(machine, what)]
    checked(machine.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin=json.dumps(content)), machine.name)


DRIVER = "csi.nodeproof.dev"
NAMESPACE = "nodeproof"
LABEL = "nodeproof.dev/volumes"
USER = "csi-attacher"
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
# The rules are upstream's: deploy/kubernetes/rbac.yaml of kubernetes-csi/external-attacher v4.12.0.
_DRIVER_MANIFEST = f"""
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: {DRIVER}, labels: {{{LABEL}: "$id"}}}}
spec: {{attachRequired: true, podInfoOnMount: false, fsGroupPolicy: None}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: nodeproof-{ATTACHER}, labels: {{{LABEL}: "$id"}}}}
rules:
- {{apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, patch]}}
- {{apiGroups: [storage.k8s.io], resources: [csinodes], verbs: [get, list, watch]}}
- {{apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, list, watch, patch]}}
- {{apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: nodeproof-{ATTACHER}, labels: {{{LABEL}: "$id"}}}}
subjects: [{{kind: User, name: {USER}, apiGroup: rbac.authorization.k8s.io}}]
roleRef: {{kind: ClusterRole, name: nodeproof-{ATTACHER}, apiGroup: rbac.authorization.k8s.io}}
"""
_SIZE = str(16 << 20)
_VOLUME_MANIFEST = f"""---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: $name, labels: {{{LABEL}: "$id"}}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  capacity: {{storage: "{_SIZE}"}}
  persistentVolumeReclaimPolicy: Retain
  csi: {{driver: {DRIVER}, volumeHandle: $handle}}
  claimRef: {{namespace: {NAMESPACE}, name: $name}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: $name, namespace: {NAMESPACE}, labels: {{{LABEL}: "$id"}}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  resources: {{requests: {{storage: "{_SIZE}"}}}}
  volumeName: $name
"""


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
        return [cls(id=fault_id) for fault_id in ids_in(listed, rf"{ATTACHER}/volumes-ID\.json$")]

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
        self.run(machine, ["kubectl", "apply", "--filename=-"], self.manifest())
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
        pvcs = _of_kind(objects, "PersistentVolumeClaim")
        bound = {_name(item) for item in pvcs if item["status"].get("phase") == "Bound"}
        return bound >= {*self.pvcs} and _ready_nodes(objects) <= _nodes_with_driver(objects)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the attacher's port is closed, no object is left and no node has the driver."""
        if machine.is_powered() or not machine.refuses_on_control():
            return False
        objects = self._all_objects(machine)
        return not self._leftovers(objects) and not _nodes_with_driver(objects)

    def manifest(self) -> str:
        """Return the manifest of all objects, but the pods that use them."""
        volumes = (
            Template(_VOLUME_MANIFEST).substitute(name=pvc, id=self.id, handle=handle(pvc))
            for pvc in self.pvcs
        )
        return "".join([Template(_DRIVER_MANIFEST).substitute(id=self.id), *volumes])

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


def unique_volume_name(pvc: str) -> str:
    """Return the name of a PVC's volume in the status of a Node.

    Source: GetUniqueVolumeName in pkg/volume/util/util.go.
    """
    return f"kubernetes.io/csi/{DRIVER}^{handle(pvc)}"


def _of_kind(objects: Sequence[Json], kind: str) -> Iterator[Json]:
    return (item for item in objects if item["kind"] == kind)


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _pvcs_of(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        yield str((volume.get("persistentVolumeClaim") or {}).get("claimName"))


def _ready_nodes(objects: Sequence[Json]) -> set[str]:
    return {_name(item) for item in _of_kind(objects, "Node") if is_ready(item)}


def _nodes_with_driver(objects: Sequence[Json]) -> set[str]:
    """Return the nodes that have the driver."""
    drivers_of = _drivers(objects).items()
    return {node for node, drivers in drivers_of if DRIVER in [driver["name"] for driver in drivers]}


def _drivers(objects: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
    return {_name(item): item["spec"].get("drivers") or [] for item in _of_kind(objects, "CSINode")}
