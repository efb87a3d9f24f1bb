"""What a witness wrote to the volume of its claim (`nodeproof.cluster.witness`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.witness import FOLDER, WRITTEN
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.model.testimony import WROTE
from nodeproof.probes.probe import Probe, output_of

_VOLUMES = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"


def acknowledged(pod: Pod) -> Probe:
    """The last number of which a pod told that it is on its volume's disk; 0 where there is none."""

    def read(lab: Lab) -> int:
        told = output_of(lab, pod.node, ["sh", "-c", f'cat {FOLDER}/"$0".*', pod.name])
        return acknowledged_in(told)

    return Probe("last number acknowledged", pod.name, read)


def last_written(pod: Pod, by: str) -> Probe:
    """The last number that a pod finds on its volume, of those that were written on node `by`; 0 for none."""
    return Probe(f"last number of {by}", pod.name, lambda lab: last_of(_text(lab, pod), by))


def write_flaws(pod: Pod) -> Probe:
    """What is wrong with the numbers on a pod's volume, a line each."""
    return Probe("flaws of what was written", pod.name, lambda lab: list(flaws_of(_text(lab, pod))))


def acknowledged_in(told: str) -> int:
    """The highest number in a pod's files of all boots, which come in no order."""
    lines = map(str.split, told.splitlines())
    return max((int(words[2]) for words in lines if words[1:2] == [WROTE]), default=0)


def last_of(text: str, by: str) -> int:
    """The last whole line of that node's."""
    found = [number for number, node in map(_line, text.splitlines()) if node == by]
    return found[-1] if found else 0


def flaws_of(text: str) -> Sequence[str]:
    """Lines that are torn, numbers that are missing, and numbers that are there more than once."""
    lines = text.splitlines()
    numbers = Counter(number for number, node in map(_line, lines) if node)
    torn = [f"torn: {line!r}" for line in lines if not _line(line)[1]]
    lost = [f"lost: {number}" for number in range(1, max(numbers, default=0)) if number not in numbers]
    doubled = [f"doubled: {number}" for number, times in sorted(numbers.items()) if times > 1]
    return [*torn, *lost, *doubled]


def _line(line: str) -> tuple[int, str]:
    """Number and node; no node where the line is not whole."""
    number, _, node = line.partition(" ")
    return (int(number), node) if number.isdecimal() and node.isprintable() else (0, "")


def _text(lab: Lab, pod: Pod) -> str:
    uid = str(lab.cluster.api.get(pod_path(pod.namespace, pod.name))["metadata"]["uid"])
    where = _VOLUMES.format(uid=uid)
    return output_of(lab, pod.node, ["sh", "-c", f'cat "$0"/*/mount/{WRITTEN}', where])
