"""Times of volumes: moved from a lost node by an out-of-service taint, and plugged into a machine."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

from infra.bench.figure import Bench, Figure
from infra.bench.host import load_after, running_lab, settle
from nodeproof.actions import pending_pod
from nodeproof.artifacts import csi
from nodeproof.checks.moments import created
from nodeproof.checks.shapes import Occurrence
from nodeproof.faults.providers import handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import Needs
from nodeproof.scenario import (
    ATTACHER,
    OUT_OF_SERVICE,
    PRESENT,
    Pod,
    Workload,
    attachment,
    became,
    condition_became,
    pod_of,
    pod_removed,
    power_off,
    preferring,
    removed,
    send_request,
    taint,
    taint_added,
    using_pvc,
    volumes,
    windows,
    workload,
    written,
)
from nodeproof.scenario.lab import Lab
from nodeproof.sources import DRIVER_CALLS, Call, driver_calls

PER_ROUND, ROUNDS, NODES = 7, 3, 3
"""A node has eight volumes at most."""
ATTACHMENTS = "volumeattachments"
DEPLOYMENTS = "/apis/apps/v1/namespaces/nodeproof/deployments"
TIMEOUT_S = 60.0
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
        samples = [times for _ in range(ROUNDS) for times in _lost(lab)]
        loads.append(load_after(lab.name))
    in_order = sum(times[REVISIONS] > 0 for times in samples)
    notes = [f"etcd took the pod's removal before the detach's request: {in_order} of {len(samples)}"]
    for part in PARTS:
        values = [times[part] for times in samples]
        yield Figure(part, "s", values, target="as measured", loads=loads, notes=notes)
    together = [sum(times[part] for part in PARTS) for times in samples]
    text = f"median {statistics.median(together):.2f} s, worst {max(together):.2f} s"
    yield Figure(
        "taint to attached elsewhere", "s", together, target="as measured", loads=loads, notes=[text]
    )


def _lost(lab: LabHandle) -> Sequence[Times]:
    """Return the times of the volumes of one node that loses its power."""
    lab.clean(NEEDS)
    with tempfile.TemporaryDirectory() as folder:
        stage = Lab(lab, Path(folder), NEEDS, nullcontext)
        node, storage = stage.target, volumes(PER_ROUND)
        out = taint_added(node, OUT_OF_SERVICE, "NoExecute")
        with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
            makers = [
                workload("Deployment", **preferring(node), **using_pvc(claim)) for claim in storage.pvcs
            ]
            held = [
                (claim, _run(stage, maker, node)) for claim, maker in zip(storage.pvcs, makers, strict=True)
            ]
            with stage.inject(power_off(node)) as off:
                unknown = condition_became(node, "Ready", "Unknown")
                stage.wait_for(unknown.after(off.injected_at, windows.detection_from_fault()))
                for _claim, pod in held:
                    leaves = became(
                        "pods", pod.name, {"metadata": {"deletionTimestamp": PRESENT}}, pod.namespace
                    )
                    stage.wait_for(leaves.after(unknown, windows.up_to(TIMEOUT_S)))
                with stage.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")):
                    steps = [_steps(stage, claim, pod) for claim, pod in held]
                    for *_before, last in steps:
                        stage.wait_for(last.after(out, windows.up_to(TIMEOUT_S)))
            stage.wait_for(condition_became(node, "Ready", "True").after(off.healing_at, windows.recovery()))
            for maker in makers:
                # Otherwise it creates pods that use the removed volume.
                stage.run(send_request("DELETE", f"{DEPLOYMENTS}/{maker.name}"))
        return [_times(stage, (out, *step)) for step in steps]


def _run(stage: Lab, pods: Workload, node: str) -> Pod:
    """Run a Deployment, and return its pod on a node."""
    stage.run(pods.make)
    runs = written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    stage.wait_for(runs.after(pods.make.begun, windows.up_to(TIMEOUT_S)))
    return stage.run(pod_of(pods, on=node))


def _steps(stage: Lab, claim: str, pod: Pod) -> Sequence[Moment]:
    """Return what follows the taint, in order; elsewhere is wherever its next pod is."""
    here = attachment(claim, pod.node)
    elsewhere = [attachment(claim, node.name) for node in stage.nodes() if node.name != pod.node]
    attached = {"metadata": {"name": {"$in": elsewhere}}, "status": {"attached": True}}
    return (
        pod_removed(pod.namespace, pod.name),
        became(ATTACHMENTS, here, {"metadata": {"deletionTimestamp": PRESENT}}),
        removed(ATTACHMENTS, here),
        written(ATTACHMENTS, attached),
    )


def _times(stage: Lab, steps: Sequence[Moment]) -> Times:
    """How long each step took after the one before (s), and how many revisions lie between the two."""
    events = [_occurrence(stage, step) for step in steps]
    _out, removal, request, *_rest = events
    took = {part: later.t - before.t for part, (before, later) in zip(PARTS, pairwise(events), strict=True)}
    return {**took, REVISIONS: request.revision - removal.revision}


def _occurrence(stage: Lab, step: Moment) -> Occurrence:
    event = stage.find(step)
    if event is None:
        raise RuntimeError(f"{step} did not come")
    return event


MOUNTS = 5
MOUNT_TIMEOUT_S, READ_TIMEOUT_S = 120.0, 10.0
MOUNT_NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"volumes"}))
PLUG, STAGE, PUBLISH = "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"


def plugging(bench: Bench, lab: LabHandle) -> Iterator[Figure]:
    """Of an empty disk: it gets its file system on the way."""
    csi.obtain(bench.say)
    loads = [settle(bench, lab.name)]
    mounts = [_mount(lab) for _ in range(MOUNTS)]
    loads.append(load_after(lab.name))
    stages = statistics.median(mount[STAGE] for mount in mounts)
    publishes = statistics.median(mount[PUBLISH] for mount in mounts)
    yield Figure(
        "attachment wanted to mounted",
        "s",
        [mount[ATTACHMENTS] for mount in mounts],
        "the hot-plug alone",
        [mount[PLUG] for mount in mounts],
        "as measured",
        None,
        loads,
        [f"of it staged with a new file system {stages:.2f} s, published {publishes:.2f} s (medians)"],
    )


def _mount(lab: LabHandle) -> Mapping[str, float]:
    """How long (s) each call took, and all from the attachment to the last of them."""
    lab.clean(MOUNT_NEEDS)
    with tempfile.TemporaryDirectory() as folder:
        stage, storage = Lab(lab, Path(folder), MOUNT_NEEDS, nullcontext), volumes()
        (claim,), node = storage.pvcs, stage.target
        wanted = created(ATTACHMENTS, attachment(claim, node))
        with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
            pod = stage.run(pending_pod(only_on=node, **using_pvc(claim)))
            runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
            stage.wait_for(runs.after(wanted, windows.up_to(MOUNT_TIMEOUT_S)))
            began, calls = stage.find(wanted), _calls(lab, claim)
    if began is None or {PLUG, STAGE, PUBLISH} - calls.keys():
        raise RuntimeError(f"{claim} was not mounted within {MOUNT_TIMEOUT_S:g} s")
    took = {method: call.t - call.begin_t for method, call in calls.items()}
    return {**took, ATTACHMENTS: calls[PUBLISH].t - began.t}


def _calls(lab: LabHandle, claim: str) -> Mapping[str, Call]:
    """Return the driver's first call of each method about a claim's volume.

    An attacher may ask again for what is done.
    """
    text = lab.fleet.machine(ATTACHER).run(["cat", DRIVER_CALLS], timeout_s=READ_TIMEOUT_S).stdout
    calls, _unsure = driver_calls(text, 0.0, math.inf)
    calls_by_method: dict[str, Call] = {}
    for call in calls:
        if call.volume == handle(claim) and call.code == "OK":
            calls_by_method.setdefault(call.method, call)
    return calls_by_method
