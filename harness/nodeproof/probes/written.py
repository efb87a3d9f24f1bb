"""The numbers that a witness wrote to the volume of its claim (`nodeproof.cluster.witness`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.witness import FOLDER, WRITTEN
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.model.testimony import WROTE
from nodeproof.probes.probe import Probe, output_of

Json = Any
_VOLUMES = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"
_CAT = f'for file in "$0"/*/mount/{WRITTEN}; do [ ! -e "$file" ] || cat "$file" || exit; done'


def acknowledged(pod: Pod) -> Probe:
    """Return a probe of the last number that a pod reported as synced to its volume; 0 if there is none."""

    def read(lab: Lab) -> int:
        reports = output_of(lab, pod.node, ["sh", "-c", f'cat {FOLDER}/"$0".*', pod.name])
        return acknowledged_in(reports)

    return Probe("last number acknowledged", pod.name, read)


def last_written(pod: Pod, by: str) -> Probe:
    """Return a probe of the last number that was written to a pod's volume on node `by`; 0 if none."""
    return Probe(f"last number of {by}", pod.name, lambda lab: last_of(_text(lab, pod), by))


def writes(pod: Pod) -> Probe:
    """Return a probe of the numbers on a pod's volume: how many were `written`, and which are wrong.

    Wrong numbers are `lost`, `doubled` or `torn`.
    """

    def read(lab: Lab) -> Mapping[str, Json]:
        return counted(_text(lab, pod), lab.fleet.node_names())

    return Probe("what was written", pod.name, read)


def acknowledged_in(reports: str) -> int:
    """Return the highest number in a pod's files of all boots, which are in no order."""
    lines = map(str.split, reports.splitlines())
    return max((int(words[2]) for words in lines if words[1:2] == [WROTE]), default=0)


def last_of(text: str, by: str) -> int:
    """Return the number of the last complete line that the node wrote."""
    numbers = [number for number, _node in _whole(text, [by])]
    return numbers[-1] if numbers else 0


def counted(text: str, nodes: Collection[str]) -> Mapping[str, Json]:
    """Return how many lines are complete, and the missing, repeated and torn ones.

    A torn line is one without a known node or without an end.
    """
    numbers = Counter(number for number, _node in _whole(text, nodes))
    return {
        "written": numbers.total(),
        "lost": [number for number in range(1, max(numbers, default=0)) if number not in numbers],
        "doubled": [number for number, times in sorted(numbers.items()) if times > 1],
        "torn": [line for line in text.splitlines(keepends=True) if not _line(line, nodes)],
    }


def _whole(text: str, nodes: Collection[str]) -> Iterator[tuple[int, str]]:
    lines = (_line(line, nodes) for line in text.splitlines(keepends=True))
    return (line for line in lines if line)


def _line(line: str, nodes: Collection[str]) -> tuple[int, str] | None:
    """Return number and node of a line; None if it is incomplete or of none of these nodes.

    A witness appends each line in one write, so a reader never sees a part of one.
    """
    number, _, node = line.removesuffix("\n").partition(" ")
    is_whole = line.endswith("\n") and number.isdecimal() and node in nodes
    return (int(number), node) if is_whole else None


def _text(lab: Lab, pod: Pod) -> str:
    """Return what is on the pod's volume; empty if there is no such pod, or no volume on its node."""
    try:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
    except ApiError as error:
        if error.status != 404:
            raise
        return ""
    return output_of(lab, pod.node, ["sh", "-c", _CAT, _VOLUMES.format(uid=api_pod["metadata"]["uid"])])
