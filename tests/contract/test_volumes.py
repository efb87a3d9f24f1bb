"""Volumes of a lab.

Each is attached before a pod runs, kept while it is stuck, removed after it, and one machine's at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from nodeproof.actions.workloads import pending_pod, using_pvc
from nodeproof.checks.moments import became, condition_became, created, removed
from nodeproof.faults import Fault
from nodeproof.faults.volumes import DISKS, Volumes, attachment, handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model import window as windows
from nodeproof.model.history import fence
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import PRESENT
from nodeproof.probes.component import metric
from nodeproof.probes.volume import disk_holders
from nodeproof.scenario import freeze, partition, power_off, send_request, taint
from nodeproof.scenario.lab import Lab
from nodeproof.sources.calls import VolumeCalls
from tests.contract.attachments import (
    ATTACHMENTS,
    COMMAND_TIMEOUT_S,
    TIMEOUT_S,
    ask_for,
    attach,
    detach,
    guests_only,
    is_attached,
    stage_of,
    storage_of,
    the_other,
    why_not,
)
from tests.waiting import eventually

PODS = "/api/v1/namespaces/nodeproof/pods"
MANAGER = "kube-controller-manager"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
ATTACHED = ("ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume")
"""The calls of a driver before a pod runs."""
ROUNDS = 3
HARMS: Mapping[str, Callable[[str], Fault]] = {
    "frozen": freeze,
    "cut off": partition,
    "off": power_off,
}


@pytest.fixture
def stage(lab: LabHandle, tmp_path: Path) -> Lab:
    return stage_of(lab, tmp_path)


@pytest.fixture
def storage(lab: LabHandle) -> Iterator[Volumes]:
    yield from storage_of(lab)


def revisions(stage: Lab, resource: str, name: str) -> Mapping[str, int]:
    """Return the etcd revisions of creation, attachment, running, request of deletion, and removal."""
    versions: dict[str, int] = {}
    for entry in stage.history().of_kind("watch"):
        obj = entry.data["object"]
        if entry.data["resource"] != resource or obj["metadata"]["name"] != name:
            continue
        status, kind = obj.get("status") or {}, entry.data["type"]
        shown = {
            "made": kind == "ADDED",
            "attached": bool(status.get("attached")),
            "runs": status.get("phase") == "Running",
            "wanted": "deletionTimestamp" in obj["metadata"],
            "removed": kind == "DELETED",
        }
        for what in (what for what, is_so in shown.items() if is_so):
            versions.setdefault(what, int(obj["metadata"]["resourceVersion"]))
    return versions


def calls_of(stage: Lab, calls: VolumeCalls) -> list[str]:
    """Return the calls of the driver, each once: an attacher that sees its own writes may repeat calls."""
    records = (entry.data for entry in stage.history().of_kind("told"))
    return list(dict.fromkeys(data["what"] for data in records if data["by"] == calls.by))


def test_volume_is_removed_with_its_pod(lab: LabHandle, stage: Lab, storage: Volumes) -> None:
    (claim,), node = storage.pvcs, stage.target
    name, calls = attachment(claim, node), VolumeCalls(claim)
    attached = became(ATTACHMENTS, name, {"status": {"attached": True}})
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        pod = stage.run(pending_pod(only_on=node, **using_pvc(claim)))
        runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
        stage.wait_for(runs.after(attached, windows.up_to(TIMEOUT_S)))
        stage.collect(calls)
        deleted = send_request("DELETE", f"{PODS}/{pod.name}")
        stage.run(deleted)
        stage.wait_for(removed(ATTACHMENTS, name).after(deleted.begun, windows.up_to(TIMEOUT_S)))
    assert fence(stage.history()).passed
    volume, held_by = revisions(stage, ATTACHMENTS, name), revisions(stage, "pods", pod.name)
    assert volume["made"] < volume["attached"] < held_by["runs"] < volume["wanted"] < volume["removed"]
    entries = [entry for entry in stage.history().of_kind("told") if entry.data["by"] == calls.by]
    assert calls_of(stage, calls) == [f"{method} {node} OK" for method in ATTACHED]
    assert [entry.t for entry in entries] == sorted(entry.t for entry in entries)
    assert [entry.data["unsure"] for entry in stage.history().of_kind("heard")] == [[]]


def test_volume_of_a_lost_node_is_detached_once_it_is_out_of_service(
    lab: LabHandle, stage: Lab, storage: Volumes
) -> None:
    (claim,), node = storage.pvcs, stage.target
    name, calls = attachment(claim, node), VolumeCalls(claim)
    wanted = became(ATTACHMENTS, name, {"metadata": {"deletionTimestamp": PRESENT}})
    counter = metric(MANAGER, FORCED, reason="out-of-service")
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        pod = stage.run(pending_pod(only_on=node, **using_pvc(claim)))
        runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
        stage.wait_for(runs.after(created(ATTACHMENTS, name), windows.up_to(TIMEOUT_S)))
        removal, before = removed("pods", pod.name, pod.namespace), stage.observe(counter)
        with stage.inject(power_off(node)) as off:
            unknown = condition_became(node, "Ready", "Unknown")
            stage.wait_for(unknown.after(off.injected_at, windows.detection_from_fault()))
            deleted = send_request("DELETE", f"{PODS}/{pod.name}")
            stage.run(deleted)
            stage.wait_for(wanted.never_after(deleted.ended, windows.absence(5)))
            assert stage.find(wanted) is None and stage.find(removal) is None
            with stage.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")) as out:
                stage.wait_for(removed(ATTACHMENTS, name).after(out.injected_at, windows.up_to(TIMEOUT_S)))
                after = stage.observe(counter)
                stage.collect(calls)
        stage.wait_for(condition_became(node, "Ready", "True").after(off.healing_at, windows.recovery()))
    volume = revisions(stage, ATTACHMENTS, name)
    assert revisions(stage, "pods", pod.name)["removed"] < volume["wanted"] < volume["removed"]
    assert (after.value or 0) - (before.value or 0) == 1
    expected = [*ATTACHED, "ControllerUnpublishVolume"]
    assert calls_of(stage, calls) == [f"{method} {node} OK" for method in expected], "never unstaged"


@pytest.mark.vm
def test_volume_is_attached_to_one_node_at_a_time(lab: LabHandle, stage: Lab, storage: Volumes) -> None:
    (claim,), node, other = storage.pvcs, stage.target, the_other(lab, stage.target)
    past_the_driver = ["sh", DISKS, "attach", handle(claim), other]
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        assert stage.observe(disk_holders(claim)).value == [node]
        error = {"$contains": f"volume {handle(claim)} is attached to {node}, so not to {other}"}
        second = attach(stage, claim, other, {"attachError": {"message": error}})
        if "real-pods" in lab.features:
            process = lab.fleet.machine(ATTACHER).run(past_the_driver, timeout_s=COMMAND_TIMEOUT_S)
            assert process.status == 2 and 'Failed to get "write" lock' in process.stderr, process.stderr
        assert stage.observe(disk_holders(claim)).value == [node]
        detach(stage, second)
        detach(stage, first)
        assert stage.observe(disk_holders(claim)).value == []


@pytest.mark.parametrize("how", HARMS)
def test_volume_is_detached_from_an_unresponsive_machine(
    lab: LabHandle, stage: Lab, storage: Volumes, how: str
) -> None:
    guests_only(lab)
    (claim,), node, other = storage.pvcs, stage.target, the_other(lab, stage.target)
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        with stage.inject(HARMS[how](node)) as harm:
            detach(stage, first)
            assert stage.observe(disk_holders(claim)).value == []
            second = attach(stage, claim, other, {"attached": True})
            assert stage.observe(disk_holders(claim)).value == [other]
        stage.wait_for(condition_became(node, "Ready", "True").after(harm.healing_at, windows.recovery()))
        assert stage.observe(disk_holders(claim)).value == [other], "booted or not"
        detach(stage, second)


def test_volume_wanted_by_two_nodes_at_once_goes_to_one(lab: LabHandle, stage: Lab, storage: Volumes) -> None:
    (claim,), nodes = storage.pvcs, sorted(lab.fleet.node_names())[:2]
    attacher = lab.fleet.machine(ATTACHER)
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        for _round in range(ROUNDS):
            # At its start it finds both attachments.
            attacher.power("off")
            names = {node: ask_for(lab, claim, node) for node in nodes}
            attacher.power("on")
            first = eventually(partial(attached_to, lab, names), TIMEOUT_S)
            (second,) = (node for node in nodes if node != first)
            error = f"volume {handle(claim)} is attached to {first}, so not to {second}"
            # The kubelet may first have to register the driver again.
            assert eventually(partial(says, lab, names[second], error), TIMEOUT_S)
            assert stage.observe(disk_holders(claim)).value == [first]
            detach(stage, names[first])
            assert eventually(partial(is_attached, lab, names[second]), TIMEOUT_S)
            assert stage.observe(disk_holders(claim)).value == [second]
            detach(stage, names[second])


def attached_to(lab: LabHandle, names: Mapping[str, str]) -> str:
    """Return the node to which one of these attachments, named by their nodes, is attached."""
    return next((node for node, name in names.items() if is_attached(lab, name)), "")


def says(lab: LabHandle, name: str, error: str) -> bool:
    """Return whether this is the attachment error."""
    return error in why_not(lab, name)
