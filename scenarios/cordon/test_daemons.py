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

PLACED_S, RUNS_S = 10.0, 60.0
"""A controller makes a pod and the scheduler binds it; a container on an emulated machine takes its time."""


@claims("cordon.daemonset-still-scheduled")
@needs(nodes=2, lasts="6R")
def test_a_daemon_runs_on_a_cordoned_node_and_stays(lab: Stage, judge: Judge) -> None:
    node = lab.target
    daemons = workload("DaemonSet")
    its = daemons.pods
    there = written("pods", {**its, "spec": {"nodeName": node}})
    running = written("pods", {**its, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    leaves = written("pods", {"metadata": {**its["metadata"], "deletionTimestamp": PRESENT}})

    with lab.record():
        lab.do(kubectl("cordon", node))
        lab.do(daemons.make)
        placed = lab.wait_for(there.after(daemons.make.begun, windows.prompt(PLACED_S)))
        runs = lab.wait_for(running.after(there, windows.prompt(RUNS_S)))
        stays = lab.wait_for(leaves.never_after(running, windows.absence(lab.quiet_s)))

    for check in (placed, runs, stays):
        judge("cordon.daemonset-still-scheduled", check)
