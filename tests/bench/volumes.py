"""What an out-of-service taint takes to give a lost node's volumes to other nodes: the control plane's parts,
as where nodes are processes no disk takes any time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

from nodeproof.artifacts import csi
from nodeproof.checks.occurrence import Occurrence
from nodeproof.labs.client.lab import Lab
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import Needs
from nodeproof.scenario import (
    ATTACHER,
    OUT_OF_SERVICE,
    PRESENT,
    Pod,
    Workload,
    ask,
    attachment,
    became,
    condition_became,
    holding,
    pod_gone,
    pod_of,
    power_off,
    preferring,
    removed,
    taint,
    taint_added,
    volumes,
    windows,
    workload,
    written,
)
from nodeproof.scenario.stage import Stage
from tests.bench.figure import Bench, Figure
from tests.bench.ground import load_after, running_lab, settle

EACH, ROUNDS, NODES = 7, 3, 3
"""A node has eight volumes at most."""
ATTACHMENTS = "volumeattachments"
DEPLOYMENTS = "/apis/apps/v1/namespaces/nodeproof/deployments"
LIMIT_S = 60.0
PARTS = (
    "taint to the pod's removal",
    "that to the detach's request",
    "that to detached",
    "that to attached elsewhere",
)
REVISIONS = "revisions between the pod's removal and the detach's request"
NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"power", "volumes"}))
Times = Mapping[str, float]


def out_of_service(bench: Bench) -> Iterator[Figure]:
    """Each part of it, of all volumes of a few nodes that are lost one after another."""
    csi.obtain(bench.say)
    with running_lab(bench, NODES, "fast") as (lab, _took):
        loads = [settle(bench, lab.name)]
        lab.lease()
        lab.prepare()
        found = [times for _ in range(ROUNDS) for times in _lost(lab)]
        loads.append(load_after(lab.name))
    in_order = sum(times[REVISIONS] > 0 for times in found)
    notes = [f"etcd took the pod's removal before the detach's request: {in_order} of {len(found)}"]
    for part in PARTS:
        values = [times[part] for times in found]
        yield Figure(part, "s", values, target="as measured", loads=loads, notes=notes)
    together = [sum(times[part] for part in PARTS) for times in found]
    said = f"median {statistics.median(together):.2f} s, worst {max(together):.2f} s"
    yield Figure(
        "taint to attached elsewhere", "s", together, target="as measured", loads=loads, notes=[said]
    )


def _lost(lab: Lab) -> Sequence[Times]:
    """The times of the volumes of one node that loses its power."""
    lab.clean(NEEDS)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(lab, Path(folder), NEEDS, nullcontext)
        node, storage = stage.target, volumes(EACH)
        out = taint_added(node, OUT_OF_SERVICE, "NoExecute")
        with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
            makers = [
                workload("Deployment", **preferring(node), **holding(claim)) for claim in storage.claims
            ]
            held = [
                (claim, _run(stage, maker, node)) for claim, maker in zip(storage.claims, makers, strict=True)
            ]
            with stage.inject(power_off(node)) as off:
                unknown = condition_became(node, "Ready", "Unknown")
                stage.wait_for(unknown.after(off.began, windows.detection_from_fault()))
                for _claim, pod in held:
                    leaves = became(
                        "pods", pod.name, {"metadata": {"deletionTimestamp": PRESENT}}, pod.namespace
                    )
                    stage.wait_for(leaves.after(unknown, windows.prompt(LIMIT_S)))
                with stage.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")):
                    steps = [_steps(stage, claim, pod) for claim, pod in held]
                    for *_before, last in steps:
                        stage.wait_for(last.after(out, windows.prompt(LIMIT_S)))
            stage.wait_for(condition_became(node, "Ready", "True").after(off.healing, windows.recovery()))
            for maker in makers:
                # Or it makes pods that hold what is taken away.
                stage.do(ask("DELETE", f"{DEPLOYMENTS}/{maker.name}"))
        return [_times(stage, (out, *each)) for each in steps]


def _run(stage: Stage, pods: Workload, node: str) -> Pod:
    """A Deployment's pod on a node."""
    stage.do(pods.make)
    runs = written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    stage.wait_for(runs.after(pods.make.begun, windows.prompt(LIMIT_S)))
    return stage.do(pod_of(pods, on=node))


def _steps(stage: Stage, claim: str, pod: Pod) -> Sequence[Moment]:
    """What follows the taint, in order; elsewhere is wherever its next pod is."""
    here = attachment(claim, pod.node)
    elsewhere = [attachment(claim, each.name) for each in stage.nodes() if each.name != pod.node]
    attached = {"metadata": {"name": {"$in": elsewhere}}, "status": {"attached": True}}
    return (
        pod_gone(pod.namespace, pod.name),
        became(ATTACHMENTS, here, {"metadata": {"deletionTimestamp": PRESENT}}),
        removed(ATTACHMENTS, here),
        written(ATTACHMENTS, attached),
    )


def _times(stage: Stage, steps: Sequence[Moment]) -> Times:
    """How long each step took after the one before (s), and how many revisions lie between the two."""
    found = [_found(stage, step) for step in steps]
    _out, removal, request, *_rest = found
    took = {part: later.t - before.t for part, (before, later) in zip(PARTS, pairwise(found), strict=True)}
    return {**took, REVISIONS: request.revision - removal.revision}


def _found(stage: Stage, step: Moment) -> Occurrence:
    found = stage.find(step)
    if found is None:
        raise RuntimeError(f"{step} did not come")
    return found
