"""The words for faults: each makes a new one, of an id of its own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from nodeproof.cluster.workloads import Pod, manifest
from nodeproof.faults import (
    CalledOff,
    Clock,
    Cloud,
    Freeze,
    HugePages,
    KubeletSettings,
    KubeProxy,
    Labelled,
    LinkDown,
    NodeDeleted,
    OtherFile,
    Outage,
    Partition,
    PowerOff,
    ReadyPatched,
    Refused,
    Reset,
    Settings,
    Shutdown,
    Swap,
    Taint,
    UnitDown,
    UnitUp,
    Volumes,
)
from nodeproof.faults.cloud import State
from nodeproof.faults.partition import Answer, Direction
from nodeproof.faults.refused import What
from nodeproof.faults.shutdown import Way
from nodeproof.faults.unit_down import KUBELET
from nodeproof.labs.client.fleet import NodeInfo
from nodeproof.labs.ground.control_plane import SERVICE_ADDRESS

STATIC_PODS = "/etc/kubernetes/manifests"
"""Where a kubelet looks for static pods, if it is told to."""


def partition(node: str, direction: Direction = "both", answer: Answer = "drop") -> Partition:
    """A new partition of a node and the control plane; with `reject` the node is answered at once."""
    return Partition(uuid.uuid4().hex[:8], node, direction, answer)


def power_off(node: str) -> PowerOff:
    """A new power-off of a node."""
    return PowerOff(uuid.uuid4().hex[:8], node)


def link_down(node: str) -> LinkDown:
    """A new pull of a node's `data` cable; needs the feature `link`."""
    return LinkDown(uuid.uuid4().hex[:8], node)


def freeze(node: str) -> Freeze:
    """A new standstill of a node; needs the feature `freeze`."""
    return Freeze(uuid.uuid4().hex[:8], node)


def reset(node: str) -> Reset:
    """A new reset of a node, which boots when the fault's context ends; needs the feature `reset`."""
    return Reset(uuid.uuid4().hex[:8], node)


def shutdown(node: str, way: Way = "orderly") -> Shutdown:
    """A new shutdown of a node by its own systemd, or a `forced` one, past logind and systemd; needs the
    feature `systemd`.
    """
    return Shutdown(uuid.uuid4().hex[:8], node, way)


def called_off_shutdown(node: str, holds_s: int = 0) -> CalledOff:
    """A new shutdown of a node whose last step is refused: pods end, the machine stays; needs `systemd`. A
    lock of the fault's own can hold it up for some seconds, whatever becomes of the kubelet's.
    """
    return CalledOff(uuid.uuid4().hex[:8], node, holds_s)


def clock(node: str, ahead_s: int) -> Clock:
    """A new setting of a node's clock, ahead by so many seconds or, where they are fewer than none, back;
    needs the feature `systemd`.
    """
    return Clock(uuid.uuid4().hex[:8], node, ahead_s)


def swap(node: str, size_mib: int = 128, *, used_mib: int = 0) -> Swap:
    """New swap space of so many MiB on a node, to which a process of its own, beside all pods, pages
    `used_mib`; needs the feature `swap`.
    """
    return Swap(uuid.uuid4().hex[:8], node, size_mib, used_mib)


def huge_pages(node: str, many: int = 16) -> HugePages:
    """New huge pages of a node, each of its default size; needs a kernel of its own, as the feature `swap`
    says.
    """
    return HugePages(uuid.uuid4().hex[:8], node, many)


def unit_down(node: str, unit: str = KUBELET) -> UnitDown:
    """A new stop of a node's unit; any but the kubelet's needs the feature `systemd`."""
    return UnitDown(uuid.uuid4().hex[:8], node, unit)


def unit_up(node: str, script: str) -> UnitUp:
    """A new unit of a node's that runs a shell's script as long as the fault lasts; needs the feature
    `systemd`. The script should leave nothing, however it ends.
    """
    return UnitUp(uuid.uuid4().hex[:8], node, script)


def other_file(node: str, path: str, content: str) -> OtherFile:
    """A new file of a node with other content; what was there is put back."""
    return OtherFile(uuid.uuid4().hex[:8], node, path, content)


def static_pod(pod: Pod, requests: Mapping[str, str] | None = None) -> OtherFile:
    """A new file for a static pod, `mirror_pod(NODE)`, that asks for so much. It has to be there before the
    kubelet is told of it: `kubelet_settings(NODE, staticPodPath=STATIC_PODS)`.
    """
    return other_file(pod.node, f"{STATIC_PODS}/{pod.name}.json", manifest(pod, requests or {}))


def outage(*nodes: NodeInfo) -> Outage:
    """A new cut of all these nodes (`lab.nodes()`) from the control plane, at one instant."""
    return Outage(uuid.uuid4().hex[:8], {node.name: node.data_address for node in nodes})


def node_deleted(node: str, labels: Mapping[str, str]) -> NodeDeleted:
    """A new deletion of a node's Node, which is given back with these labels."""
    return NodeDeleted(uuid.uuid4().hex[:8], node, labels)


def cloud(
    answers: Mapping[str, State], labels: Mapping[str, Mapping[str, str]], *, sets_up: bool = False
) -> Cloud:
    """A new cloud of the cluster, and what it says of nodes' machines: each `exists`, is `shut-down` or
    `gone`; one that is not named exists. `labels` are those of each node, which is given back with them. It
    has to be declared: `needs(components=(CLOUD,))`. With `sets_up` it also makes those nodes ready for use
    that wait for a cloud, and keeps their addresses (`cloud_gives`).
    """
    return Cloud(uuid.uuid4().hex[:8], answers, labels, sets_up=sets_up)


def kube_proxy(node: str) -> KubeProxy:
    """A new kube-proxy of a node, through which it reaches the API at its Service's address; needs the
    feature `proxy`. When the fault's context ends it is killed, and its rules are flushed.
    """
    return KubeProxy(uuid.uuid4().hex[:8], node, SERVICE_ADDRESS)


def settings(component: str, **flags: str) -> Settings:
    """Other flags of a component of the control plane, an underscore for each dash; it has to be declared:
    `needs(components=...)`.
    """
    return Settings(uuid.uuid4().hex[:8], component, {name.replace("_", "-"): flags[name] for name in flags})


def volumes(many: int = 1) -> Volumes:
    """A CSI driver of the cluster's, upstream's external-attacher, and so many new volumes with `claims`;
    needs the feature `volumes`, and has to be declared: `needs(components=(ATTACHER,))`.
    """
    return Volumes(uuid.uuid4().hex[:8], many)


def taint(node: str, key: str, effect: str, value: str = "nodeproof", also: Sequence[str] = ()) -> Taint:
    """A new taint of a node, as an administrator's, and of other nodes by the same command."""
    return Taint(uuid.uuid4().hex[:8], node, key, value, effect, also=tuple(also))


def labelled(key: str, value: str | None, before: Mapping[str, str | None]) -> Labelled:
    """A new value of a label on the nodes that are told with what they had `before`; None takes it away."""
    return Labelled(uuid.uuid4().hex[:8], key, value, before)


def refused(node: str, what: What) -> Refused:
    """A new refusal of a node's updates: of its `status`, or of its `lease`."""
    return Refused(uuid.uuid4().hex[:8], node, what)


def ready_patched(node: str) -> ReadyPatched:
    """A new PATCH of a node's Ready to False, which its kubelet can't put right; the node itself is well."""
    return ReadyPatched(uuid.uuid4().hex[:8], node)


def kubelet_settings(node: str, **settings: Any) -> KubeletSettings:
    """Other settings of a node's kubelet, fields of KubeletConfiguration."""
    return KubeletSettings(uuid.uuid4().hex[:8], node, settings)
