"""Constructors of faults. Each returns a new fault with its own id; the fault acts when it is injected."""

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
"""The folder for static pods of a kubelet that is configured to use it."""


def partition(node: str, direction: Direction = "both", answer: Answer = "drop") -> Partition:
    """Cut a node off from the control plane; with `reject` the node gets an answer at once."""
    return Partition(uuid.uuid4().hex[:8], node, direction, answer)


def power_off(node: str) -> PowerOff:
    """Cut a node's power."""
    return PowerOff(uuid.uuid4().hex[:8], node)


def link_down(node: str) -> LinkDown:
    """Unplug a node's `data` cable; needs the feature `link`."""
    return LinkDown(uuid.uuid4().hex[:8], node)


def freeze(node: str) -> Freeze:
    """Pause a node; needs the feature `freeze`."""
    return Freeze(uuid.uuid4().hex[:8], node)


def reset(node: str) -> Reset:
    """Reset a node, which boots when the fault's context ends; needs the feature `reset`."""
    return Reset(uuid.uuid4().hex[:8], node)


def shutdown(node: str, way: Way = "orderly") -> Shutdown:
    """Shut a node down by its own systemd; needs the feature `systemd`.

    A `forced` shutdown bypasses logind and systemd.
    """
    return Shutdown(uuid.uuid4().hex[:8], node, way)


def called_off_shutdown(node: str, holds_s: int = 0) -> CalledOff:
    """Start a shutdown whose last step is refused: pods end, the machine stays; needs the feature `systemd`.

    A lock of the fault's own can postpone it for `holds_s`, whatever happens to the kubelet's lock.
    """
    return CalledOff(uuid.uuid4().hex[:8], node, holds_s)


def clock(node: str, ahead_s: int) -> Clock:
    """Set a node's clock ahead by some seconds, or back if negative; needs the feature `systemd`."""
    return Clock(uuid.uuid4().hex[:8], node, ahead_s)


def swap(node: str, size_mib: int = 128, *, used_mib: int = 0) -> Swap:
    """Add a swap file to a node, and a process outside of all pods that uses it; needs the feature `swap`."""
    return Swap(uuid.uuid4().hex[:8], node, size_mib, used_mib)


def huge_pages(node: str, many: int = 16) -> HugePages:
    """Reserve huge pages of the default size on a node.

    The node needs a kernel of its own, as for the feature `swap`.
    """
    return HugePages(uuid.uuid4().hex[:8], node, many)


def unit_down(node: str, unit: str = KUBELET) -> UnitDown:
    """Stop a node's unit; any but the kubelet's needs the feature `systemd`."""
    return UnitDown(uuid.uuid4().hex[:8], node, unit)


def unit_up(node: str, script: str) -> UnitUp:
    """Run a shell script as a unit of a node while the fault lasts; needs the feature `systemd`.

    The script should leave no files, however it ends.
    """
    return UnitUp(uuid.uuid4().hex[:8], node, script)


def other_file(node: str, path: str, content: str) -> OtherFile:
    """Replace or create a file on a node; the original is restored."""
    return OtherFile(uuid.uuid4().hex[:8], node, path, content)


def static_pod(pod: Pod, requests: Mapping[str, str] | None = None) -> OtherFile:
    """Write the manifest of a static pod, `mirror_pod(NODE)`, with these resource requests.

    It must exist before the kubelet is configured: `kubelet_settings(NODE, staticPodPath=STATIC_PODS)`.
    """
    return other_file(pod.node, f"{STATIC_PODS}/{pod.name}.json", manifest(pod, requests or {}))


def outage(*nodes: NodeInfo) -> Outage:
    """Cut all these nodes (`lab.nodes()`) off from the control plane, at one instant."""
    return Outage(uuid.uuid4().hex[:8], {node.name: node.data_address for node in nodes})


def node_deleted(node: str, labels: Mapping[str, str]) -> NodeDeleted:
    """Delete a node's Node; healing creates it again with these labels."""
    return NodeDeleted(uuid.uuid4().hex[:8], node, labels)


def cloud(
    answers: Mapping[str, State], labels: Mapping[str, Mapping[str, str]], *, sets_up: bool = False
) -> Cloud:
    """Give the cluster a cloud, which reports the state of nodes' machines.

    It must be declared: `needs(components=(CLOUD,))`.

    Args:
        answers: The state of each node's machine: `exists`, `shut-down` or `gone`; by default it exists.
        labels: The labels of each node, with which it is restored.
        sets_up: Whether it also initialises nodes that wait for a cloud, and updates their addresses
            (`cloud_gives`).
    """
    return Cloud(uuid.uuid4().hex[:8], answers, labels, sets_up=sets_up)


def kube_proxy(node: str) -> KubeProxy:
    """Run kube-proxy on a node, which reaches the API at its Service's address; needs the feature `proxy`.

    When the fault's context ends it is killed and its rules are flushed.
    """
    return KubeProxy(uuid.uuid4().hex[:8], node, SERVICE_ADDRESS)


def settings(component: str, **flags: str) -> Settings:
    """Restart a component of the control plane with other flags, an underscore for each dash.

    The component must be declared: `needs(components=...)`.
    """
    return Settings(uuid.uuid4().hex[:8], component, {name.replace("_", "-"): flags[name] for name in flags})


def volumes(many: int = 1) -> Volumes:
    """Run a CSI driver and external-attacher, with new volumes and `claims`; needs the feature `volumes`.

    It must be declared: `needs(components=(ATTACHER,))`.
    """
    return Volumes(uuid.uuid4().hex[:8], many)


def taint(node: str, key: str, effect: str, value: str = "nodeproof", also: Sequence[str] = ()) -> Taint:
    """Taint a node as an administrator does, and other nodes by the same command."""
    return Taint(uuid.uuid4().hex[:8], node, key, value, effect, also=tuple(also))


def labelled(key: str, value: str | None, before: Mapping[str, str | None]) -> Labelled:
    """Change a label on nodes, or remove it if None.

    `before` has the nodes and their former values.
    """
    return Labelled(uuid.uuid4().hex[:8], key, value, before)


def refused(node: str, what: What) -> Refused:
    """Deny a node's updates of its `status` or its `lease`."""
    return Refused(uuid.uuid4().hex[:8], node, what)


def ready_patched(node: str) -> ReadyPatched:
    """Patch a healthy node's Ready to False, which its kubelet cannot correct."""
    return ReadyPatched(uuid.uuid4().hex[:8], node)


def kubelet_settings(node: str, **settings: Any) -> KubeletSettings:
    """Restart a node's kubelet with other settings, which are fields of KubeletConfiguration."""
    return KubeletSettings(uuid.uuid4().hex[:8], node, settings)
