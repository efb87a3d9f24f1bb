"""Mounts of a pod's volumes on its node."""

from __future__ import annotations

from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of


def mounted(pod: Pod, volume: str) -> Probe:
    """Return a probe of a volume's mount in a pod: its file system type and options, one per line.

    It needs the feature `real-pods`.
    """

    def read(lab: Lab) -> str:
        uid = str(lab.cluster.api.get(pod_path(pod.namespace, pod.name))["metadata"]["uid"])
        mount = mount_of(output_of(lab, pod.node, ["cat", "/proc/mounts"]), uid, volume)
        if not mount:
            raise MachineError(f"{pod.node}: volume {volume} of {pod.name} is not mounted")
        return mount

    return Probe(f"mount of {volume}", pod.name, read)


def mount_of(mounts: str, uid: str, volume: str) -> str:
    """Return the last mount of a volume, from the text of /proc/mounts; empty if it is not mounted."""
    mount = ""
    for line in mounts.splitlines():
        _device, point, type_, options, *_ = line.split()
        if f"/pods/{uid}/volumes/" in point and point.endswith(f"/{volume}"):
            mount = "\n".join([type_, *options.split(",")])
    return mount
