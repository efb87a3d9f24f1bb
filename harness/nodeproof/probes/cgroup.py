"""Limits that the kernel sets for a container."""

from __future__ import annotations

from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of

SWAP_LIMIT = "memory.swap.max"


def cgroup_file(pod: Pod, name: str) -> Probe:
    """Return a probe of a cgroup (v2) file of a pod's first container; needs the feature `real-pods`."""

    def read(lab: Lab) -> str:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
        statuses = api_pod["status"].get("containerStatuses") or [{}]
        container = str(statuses[0].get("containerID", "")).rpartition("/")[2]
        if not container:
            raise MachineError(f"{pod.node}: no container of {pod.name} has started; see its events")
        scope = f"cri-containerd-{container}.scope"
        find = ["find", "/sys/fs/cgroup", "-path", f"*/{scope}/{name}", "-exec", "cat", "{}", ";"]
        content = output_of(lab, pod.node, find).strip()
        if not content:
            raise MachineError(f"{pod.node}: no {name} in a cgroup of {pod.name}")
        return content

    return Probe(name, pod.name, read)


def swap_limit(pod: Pod) -> Probe:
    """Return a probe of a pod's swap limit in the kernel (bytes, or `max`); needs the feature `real-pods`."""
    return cgroup_file(pod, SWAP_LIMIT)
