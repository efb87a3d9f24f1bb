"""Probes of volumes: mounts, the machines that have a disk, and the numbers that a witness wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import WITNESS_FOLDER, WRITTEN, Pod
from nodeproof.faults.volumes import DISKS, handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import words_in
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import WROTE
from nodeproof.probes.probe import Probe, output_of


def mounted(pod: Pod, volume: str) -> Probe:
    """Return a probe of a volume's mount in a pod: its file system type and options, one per line.

    It needs the feature `real-pods`.
    """

    def read(lab: LabHandle) -> str:
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


def disk_holders(pvc: str) -> Probe:
    """Return a probe of the running machines that have a PVC's disk attached; needs the feature `volumes`.

    The hypervisor reports them, not the CSI driver or the API.
    """

    def read(lab: LabHandle) -> list[str]:
        return output_of(lab, ATTACHER, ["sh", DISKS, "holders", handle(pvc)]).split()

    return Probe("holders of the disk", pvc, read)


_VOLUMES = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"
_CAT = f'for file in "$0"/*/mount/{WRITTEN}; do [ ! -e "$file" ] || cat "$file" || exit; done'


def acknowledged(pod: Pod) -> Probe:
    """Return a probe of the last number that a pod reported as synced to its volume; 0 if there is none."""

    def read(lab: LabHandle) -> int:
        reports = output_of(lab, pod.node, ["sh", "-c", f'cat {WITNESS_FOLDER}/"$0".*', pod.name])
        return acknowledged_in(reports)

    return Probe("last number acknowledged", pod.name, read)


def last_written(pod: Pod, by: str) -> Probe:
    """Return a probe of the last number that was written to a pod's volume on node `by`; 0 if none."""
    return Probe(f"last number of {by}", pod.name, lambda lab: last_of(_text(lab, pod), by))


def writes(pod: Pod) -> Probe:
    """Return a probe of the numbers on a pod's volume: how many were `written`, and which are wrong.

    Wrong numbers are `lost`, `doubled` or `torn`.
    """

    def read(lab: LabHandle) -> Mapping[str, Json]:
        return counts_in(_text(lab, pod), lab.fleet.node_names())

    return Probe("what was written", pod.name, read)


def acknowledged_in(reports: str) -> int:
    """Return the highest number in the unordered files that a pod wrote in all boots."""
    lines = map(str.split, reports.splitlines())
    return max((int(words[2]) for words in lines if words[1:2] == [WROTE]), default=0)


def last_of(text: str, by: str) -> int:
    """Return the number of the last complete line that the node wrote."""
    numbers = [number for number, _node in _complete_lines(text, [by])]
    return numbers[-1] if numbers else 0


def counts_in(text: str, nodes: Collection[str]) -> Mapping[str, Json]:
    """Return how many lines are complete, and the missing, repeated and torn ones.

    A torn line is one without a known node or without an end.
    """
    numbers = Counter(number for number, _node in _complete_lines(text, nodes))
    return {
        "written": numbers.total(),
        "lost": [number for number in range(1, max(numbers, default=0)) if number not in numbers],
        "doubled": [number for number, times in sorted(numbers.items()) if times > 1],
        "torn": [line for line in text.splitlines(keepends=True) if not _line(line, nodes)],
    }


def _complete_lines(text: str, nodes: Collection[str]) -> Iterator[tuple[int, str]]:
    lines = (_line(line, nodes) for line in text.splitlines(keepends=True))
    return (line for line in lines if line)


def _line(line: str, nodes: Collection[str]) -> tuple[int, str] | None:
    """Return number and node of a line; None if it is incomplete or not of these nodes.

    A witness appends each line in one write, so a reader never sees a part of one.
    """
    number, _, node = line.removesuffix("\n").partition(" ")
    is_complete = line.endswith("\n") and number.isdecimal() and node in nodes
    return (int(number), node) if is_complete else None


def _text(lab: LabHandle, pod: Pod) -> str:
    """Return what is on the pod's volume; empty if there is no such pod, or no volume on its node."""
    try:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
    except ApiError as error:
        if error.status != 404:
            raise
        return ""
    return output_of(lab, pod.node, ["sh", "-c", _CAT, _VOLUMES.format(uid=api_pod["metadata"]["uid"])])


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Probe)  # noqa: PLE0605
