"""The state of a container in a node's container runtime."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of
from nodeproof.waiting import insist

_UP_TIMEOUT_S = 60.0
"""Until a container runs on a busy emulated machine."""

_NOT_YET = ("UNKNOWN", "CREATED")
"""States of a task before its process runs."""


def task_of(node: str, container: str) -> Probe:
    """Return a probe of a container's state in containerd (namespace `k8s.io`), such as `RUNNING`.

    It waits until the container has started. It needs the feature `real-pods`.
    """

    def read_state(lab: Lab) -> str:
        for line in output_of(lab, node, ["ctr", "-n", "k8s.io", "task", "ls"]).splitlines():
            words = line.split()
            if words[:1] == [container] and words[-1] not in _NOT_YET:
                return words[-1]
        raise MachineError(f"{node}: no task of {container}")

    def read(lab: Lab) -> str:
        return insist(lambda: read_state(lab), MachineError, limit_s=_UP_TIMEOUT_S, period_s=0.5)

    return Probe(f"task of {container}", node, read)
