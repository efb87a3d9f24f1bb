"""What a node's container runtime says of a container that it runs for whomever."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of
from nodeproof.waiting import insist

_UP_LIMIT_S = 60.0
"""Until a container runs on an emulated machine that is busy."""

_NOT_YET = ("UNKNOWN", "CREATED")
"""What it says of a task before its process runs."""


def task_of(node: str, container: str) -> Probe:
    """What containerd says of a container of its namespace `k8s.io`, such as `RUNNING`, as soon as it has
    begun; needs the feature `real-pods`.
    """

    def ask(lab: Lab) -> str:
        for line in output_of(lab, node, ["ctr", "-n", "k8s.io", "task", "ls"]).splitlines():
            words = line.split()
            if words[:1] == [container] and words[-1] not in _NOT_YET:
                return words[-1]
        raise MachineError(f"{node}: no task of {container}")

    def read(lab: Lab) -> str:
        return insist(lambda: ask(lab), MachineError, limit_s=_UP_LIMIT_S, period_s=0.5)

    return Probe(f"task of {container}", node, read)
