"""How a pod's volume is mounted on its node."""

from __future__ import annotations

from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of


def mounted(pod: Pod, volume: str) -> Probe:
    """The type of the file system that a pod's volume is, and its options, a line each; needs the feature
    `real-pods`.
    """

    def read(lab: Lab) -> str:
        uid = str(lab.cluster.api.get(pod_path(pod.namespace, pod.name))["metadata"]["uid"])
        said = mount_of(output_of(lab, pod.node, ["cat", "/proc/mounts"]), uid, volume)
        if not said:
            raise MachineError(f"{pod.node}: volume {volume} of {pod.name} is no mount")
        return said

    return Probe(f"mount of {volume}", pod.name, read)


def mount_of(mounts: str, uid: str, volume: str) -> str:
    """Of a volume what is mounted there last, from the text of /proc/mounts; nothing where nothing is."""
    found = ""
    for line in mounts.splitlines():
        _device, point, type_, options, *_ = line.split()
        if f"/pods/{uid}/volumes/" in point and point.endswith(f"/{volume}"):
            found = "\n".join([type_, *options.split(",")])
    return found
