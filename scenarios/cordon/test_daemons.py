"""Daemons on a node that takes no new pods."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    Stage,
    claims,
    kubectl,
    needs,
    windows,
    workload,
    written,
)

PLACED_S = 10.0
"""A controller makes a pod, the scheduler binds it, a kubelet runs it."""


@claims("cordon.daemonset-still-scheduled")
@needs(nodes=2)
def test_a_daemon_runs_on_a_cordoned_node_and_stays(lab: Stage, judge: Judge) -> None:
    node = lab.target
    daemons = workload("DaemonSet")
    its = daemons.pods
    running = written("pods", {**its, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    leaves = written("pods", {"metadata": {**its["metadata"], "deletionTimestamp": PRESENT}})

    with lab.record():
        lab.do(kubectl("cordon", node))
        lab.do(daemons.make)
        placed = lab.wait_for(running.after(daemons.make.begun, windows.prompt(PLACED_S)))
        stays = lab.wait_for(leaves.never_after(running, windows.absence(lab.quiet_s)))

    judge("cordon.daemonset-still-scheduled", placed)
    judge("cordon.daemonset-still-scheduled", stays)
