"""Volumes of a lab: attached before a pod runs, kept while it is stuck, gone after it, and one machine's at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from nodeproof.actions.pods import pending_pod
from nodeproof.actions.workloads import holding
from nodeproof.checks.moments import became, condition_became, made, removed
from nodeproof.faults import Fault
from nodeproof.faults.volumes import DISKS, Volumes, attachment, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.model import window as windows
from nodeproof.model.history import fence
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import PRESENT
from nodeproof.probes.disk_holders import disk_holders
from nodeproof.probes.metric import metric
from nodeproof.scenario import ask, freeze, partition, power_off, taint
from nodeproof.scenario.stage import Stage
from nodeproof.sources.volumes import VolumeCalls
from tests.contract.attaching import (
    ATTACHMENTS,
    COMMAND_LIMIT_S,
    LIMIT_S,
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
"""What a driver is asked before a pod runs."""
ROUNDS = 3
HARMS: Mapping[str, Callable[[str], Fault]] = {
    "frozen": freeze,
    "cut off": partition,
    "off": power_off,
}


@pytest.fixture
def stage(lab: Lab, tmp_path: Path) -> Stage:
    return stage_of(lab, tmp_path)


@pytest.fixture
def storage(lab: Lab) -> Iterator[Volumes]:
    yield from storage_of(lab)


def revisions(stage: Stage, resource: str, name: str) -> Mapping[str, int]:
    """In which order etcd took what was recorded of an object: that it was made, attached, ran, was to be
    deleted, and went.
    """
    found: dict[str, int] = {}
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
            "gone": kind == "DELETED",
        }
        for what in (what for what, is_so in shown.items() if is_so):
            found.setdefault(what, int(obj["metadata"]["resourceVersion"]))
    return found


def asked(stage: Stage, calls: VolumeCalls) -> list[str]:
    """What the driver was asked, each thing once: an attacher that sees its own writes may ask again."""
    told = (entry.data for entry in stage.history().of_kind("told"))
    return list(dict.fromkeys(data["what"] for data in told if data["by"] == calls.by))


def test_a_volume_goes_with_its_pod(lab: Lab, stage: Stage, storage: Volumes) -> None:
    (claim,), node = storage.claims, stage.target
    name, calls = attachment(claim, node), VolumeCalls(claim)
    attached = became(ATTACHMENTS, name, {"status": {"attached": True}})
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        pod = stage.do(pending_pod(only_on=node, **holding(claim)))
        runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
        stage.wait_for(runs.after(attached, windows.prompt(LIMIT_S)))
        stage.hear(calls)
        deleted = ask("DELETE", f"{PODS}/{pod.name}")
        stage.do(deleted)
        stage.wait_for(removed(ATTACHMENTS, name).after(deleted.begun, windows.prompt(LIMIT_S)))
    assert fence(stage.history()).passed
    volume, held_by = revisions(stage, ATTACHMENTS, name), revisions(stage, "pods", pod.name)
    assert volume["made"] < volume["attached"] < held_by["runs"] < volume["wanted"] < volume["gone"]
    told = [entry for entry in stage.history().of_kind("told") if entry.data["by"] == calls.by]
    assert asked(stage, calls) == [f"{method} {node} OK" for method in ATTACHED]
    assert [entry.t for entry in told] == sorted(entry.t for entry in told)
    assert [entry.data["unsure"] for entry in stage.history().of_kind("heard")] == [[]]


def test_a_lost_nodes_volume_goes_after_its_pod_once_it_is_out_of_service(
    lab: Lab, stage: Stage, storage: Volumes
) -> None:
    (claim,), node = storage.claims, stage.target
    name, calls = attachment(claim, node), VolumeCalls(claim)
    wanted = became(ATTACHMENTS, name, {"metadata": {"deletionTimestamp": PRESENT}})
    counter = metric(MANAGER, FORCED, reason="out-of-service")
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        pod = stage.do(pending_pod(only_on=node, **holding(claim)))
        runs = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
        stage.wait_for(runs.after(made(ATTACHMENTS, name), windows.prompt(LIMIT_S)))
        gone, before = removed("pods", pod.name, pod.namespace), stage.look(counter)
        with stage.inject(power_off(node)) as off:
            unknown = condition_became(node, "Ready", "Unknown")
            stage.wait_for(unknown.after(off.began, windows.detection_from_fault()))
            deleted = ask("DELETE", f"{PODS}/{pod.name}")
            stage.do(deleted)
            stage.wait_for(wanted.never_after(deleted.ended, windows.absence(5)))
            assert stage.find(wanted) is None and stage.find(gone) is None
            with stage.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")) as out:
                stage.wait_for(removed(ATTACHMENTS, name).after(out.began, windows.prompt(LIMIT_S)))
                after = stage.look(counter)
                stage.hear(calls)
        stage.wait_for(condition_became(node, "Ready", "True").after(off.healing, windows.recovery()))
    volume = revisions(stage, ATTACHMENTS, name)
    assert revisions(stage, "pods", pod.name)["gone"] < volume["wanted"] < volume["gone"]
    assert (after.value or 0) - (before.value or 0) == 1
    expected = [*ATTACHED, "ControllerUnpublishVolume"]
    assert asked(stage, calls) == [f"{method} {node} OK" for method in expected], "never unstaged"


@pytest.mark.vm
def test_a_volume_is_one_nodes_at_a_time(lab: Lab, stage: Stage, storage: Volumes) -> None:
    (claim,), node, other = storage.claims, stage.target, the_other(lab, stage.target)
    past_the_driver = ["sh", DISKS, "attach", handle(claim), other]
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        assert stage.look(disk_holders(claim)).value == [node]
        said = {"$contains": f"volume {handle(claim)} is attached to {node}, so not to {other}"}
        second = attach(stage, claim, other, {"attachError": {"message": said}})
        if "real-pods" in lab.features:
            done = lab.fleet.machine(ATTACHER).run(past_the_driver, deadline_s=COMMAND_LIMIT_S)
            assert done.status == 2 and 'Failed to get "write" lock' in done.stderr, done.stderr
        assert stage.look(disk_holders(claim)).value == [node]
        detach(stage, second)
        detach(stage, first)
        assert stage.look(disk_holders(claim)).value == []


@pytest.mark.parametrize("how", HARMS)
def test_a_volume_leaves_a_machine_that_does_not_answer(
    lab: Lab, stage: Stage, storage: Volumes, how: str
) -> None:
    guests_only(lab)
    (claim,), node, other = storage.claims, stage.target, the_other(lab, stage.target)
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        with stage.inject(HARMS[how](node)) as harm:
            detach(stage, first)
            assert stage.look(disk_holders(claim)).value == []
            second = attach(stage, claim, other, {"attached": True})
            assert stage.look(disk_holders(claim)).value == [other]
        stage.wait_for(condition_became(node, "Ready", "True").after(harm.healing, windows.recovery()))
        assert stage.look(disk_holders(claim)).value == [other], "booted or not"
        detach(stage, second)


def test_a_volume_that_two_nodes_want_at_once_is_one_nodes(lab: Lab, stage: Stage, storage: Volumes) -> None:
    (claim,), nodes = storage.claims, sorted(lab.fleet.node_names())[:2]
    attacher = lab.fleet.machine(ATTACHER)
    with stage.record(also=(ATTACHMENTS,)), stage.inject(storage):
        for _round in range(ROUNDS):
            # It finds both when it starts.
            attacher.power("off")
            names = {node: ask_for(lab, claim, node) for node in nodes}
            attacher.power("on")
            first = eventually(partial(attached_to, lab, names), LIMIT_S)
            (second,) = (node for node in nodes if node != first)
            said = f"volume {handle(claim)} is attached to {first}, so not to {second}"
            # A kubelet may have to hear of the driver again first.
            assert eventually(partial(says, lab, names[second], said), LIMIT_S)
            assert stage.look(disk_holders(claim)).value == [first]
            detach(stage, names[first])
            assert eventually(partial(is_attached, lab, names[second]), LIMIT_S)
            assert stage.look(disk_holders(claim)).value == [second]
            detach(stage, names[second])


def attached_to(lab: Lab, names: Mapping[str, str]) -> str:
    """The node to which one of these is attached, which are named by their nodes."""
    return next((node for node, name in names.items() if is_attached(lab, name)), "")


def says(lab: Lab, name: str, said: str) -> bool:
    """Whether that is why it is not attached."""
    return said in why_not(lab, name)
