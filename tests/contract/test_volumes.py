"""Volumes: attach, mount and detach, also if a component dies meanwhile."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeproof.actions import pending_pod, run_witnesses, using_pvc
from nodeproof.artifacts import csi
from nodeproof.artifacts.components import Components
from nodeproof.checks.moments import became, condition_became, created, removed
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod, Witness
from nodeproof.faults import Fault
from nodeproof.faults.providers import DISKS, DRIVER, Volumes, attachment, handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds.libvirt.hypervisor import VIRSH
from nodeproof.machines.machine import Machine
from nodeproof.model import window as windows
from nodeproof.model.history import fence
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.model.pattern import PRESENT, Json
from nodeproof.probes import acknowledged, disk_holders, last_written, metric, writes
from nodeproof.scenario import freeze, partition, power_off, send_request, taint, volumes
from nodeproof.scenario.lab import Lab
from nodeproof.sources import VolumeCalls
from tests.contract.kinds import Kind
from tests.waiting import eventually, pause, throughout

# Volumes of a lab.


ATTACHMENTS = "volumeattachments"
TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 30.0
NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"power", "volumes"}))
PATH = f"/apis/storage.k8s.io/v1/{ATTACHMENTS}"
PODS = "/api/v1/namespaces/nodeproof/pods"
MANAGER = "kube-controller-manager"
FORCED_DETACHES = "attach_detach_controller_attachdetach_controller_forced_detaches"
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
    """Return volumes that are removed completely afterwards."""
    yield volumes()
    lab.tidy()


def stage_of(lab: LabHandle, folder: Path) -> Lab:
    """Return the stage of a lab that has volumes; skips other labs."""
    if "volumes" not in lab.features:
        pytest.skip(f"a {lab.kind.name} lab has no volumes")
    csi.obtain(print)
    lab.clean(NEEDS)
    if "inotify" in (why := volumes().available(lab.fleet.machine(ATTACHER))):
        pytest.skip(why)
    return Lab(lab, folder, NEEDS, nullcontext)


def skip_without_guests(lab: LabHandle) -> None:
    """Skip the test if the backend is a table, which does not know the power state of machines."""
    if "real-pods" not in lab.features:
        pytest.skip("a table knows nothing of how its machines are")


def other_node(lab: LabHandle, node: str) -> str:
    return next(name for name in lab.fleet.node_names() if name != node)


def attachment_object(claim: str, node: str, name: str) -> Json:
    """Return a VolumeAttachment like the controller's."""
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": claim}}
    return {"metadata": {"name": name}, "spec": spec}


def request_attachment(lab: LabHandle, claim: str, node: str) -> str:
    """Create a VolumeAttachment, without waiting."""
    name = f"at-once-{claim}-{node}"
    lab.cluster.api.create(PATH, attachment_object(claim, node, name))
    return name


def attach(stage: Lab, claim: str, node: str, status: Mapping[str, object]) -> str:
    """Request a volume on a node, and wait for this status."""
    name = f"by-hand-{claim}-{node}"
    request = send_request("POST", PATH, attachment_object(claim, node, name))
    stage.run(request)
    came = became(ATTACHMENTS, name, {"status": status})
    stage.wait_for(came.after(request.begun, windows.up_to(TIMEOUT_S)))
    assert stage.find(came) is not None
    return name


def detach(stage: Lab, name: str) -> None:
    """Delete an attachment, and wait for its end."""
    request = send_request("DELETE", f"{PATH}/{name}")
    stage.run(request)
    stage.wait_for(removed(ATTACHMENTS, name).after(request.begun, windows.up_to(TIMEOUT_S)))
    assert stage.find(removed(ATTACHMENTS, name)) is not None


def delete_attachment(lab: LabHandle, name: str) -> None:
    """Delete an attachment, without waiting."""
    lab.cluster.api.delete(f"{PATH}/{name}")


def attachment_status(lab: LabHandle, name: str) -> Mapping[str, Any]:
    """Return the current status of an attachment."""
    status: Mapping[str, Any] = lab.cluster.api.get(f"{PATH}/{name}")["status"]
    return status


def is_attached(lab: LabHandle, name: str) -> bool:
    """Return whether a volume is attached."""
    return bool(attachment_status(lab, name)["attached"])


def is_refused(lab: LabHandle, name: str, error: str) -> bool:
    """Return whether an attachment has this error."""
    return error in str((attachment_status(lab, name).get("attachError") or {}).get("message", ""))


def is_being_deleted(lab: LabHandle, name: str) -> bool:
    """Return whether its deletion was requested."""
    return "deletionTimestamp" in lab.cluster.api.get(f"{PATH}/{name}")["metadata"]


def is_removed(lab: LabHandle, name: str) -> bool:
    """Return whether the attachment is removed."""
    listed = lab.cluster.api.get(PATH)["items"]
    return name not in {attachment["metadata"]["name"] for attachment in listed}


def revisions(stage: Lab, resource: str, name: str) -> Mapping[str, int]:
    """Return the etcd revisions at which an object was created, attached, running, deleting and removed."""
    versions: dict[str, int] = {}
    for entry in stage.history().of_kind("watch"):
        obj = entry.data["object"]
        if entry.data["resource"] != resource or obj["metadata"]["name"] != name:
            continue
        status, kind = obj.get("status") or {}, entry.data["type"]
        stages = {
            "created": kind == "ADDED",
            "attached": bool(status.get("attached")),
            "running": status.get("phase") == "Running",
            "deleting": "deletionTimestamp" in obj["metadata"],
            "removed": kind == "DELETED",
        }
        for what in (what for what, is_so in stages.items() if is_so):
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
    assert (
        volume["created"] < volume["attached"] < held_by["running"] < volume["deleting"] < volume["removed"]
    )
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
    counter = metric(MANAGER, FORCED_DETACHES, reason="out-of-service")
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
    assert revisions(stage, "pods", pod.name)["removed"] < volume["deleting"] < volume["removed"]
    assert (after.value or 0) - (before.value or 0) == 1
    expected = [*ATTACHED, "ControllerUnpublishVolume"]
    assert calls_of(stage, calls) == [f"{method} {node} OK" for method in expected], "never unstaged"


@pytest.mark.vm
def test_volume_is_attached_to_one_node_at_a_time(lab: LabHandle, stage: Lab, storage: Volumes) -> None:
    (claim,), node, other = storage.pvcs, stage.target, other_node(lab, stage.target)
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
    skip_without_guests(lab)
    (claim,), node, other = storage.pvcs, stage.target, other_node(lab, stage.target)
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
            names = {node: request_attachment(lab, claim, node) for node in nodes}
            attacher.power("on")
            first = eventually(partial(attached_to, lab, names), TIMEOUT_S)
            (second,) = (node for node in nodes if node != first)
            error = f"volume {handle(claim)} is attached to {first}, so not to {second}"
            # The kubelet may first have to register the driver again.
            assert eventually(partial(is_refused, lab, names[second], error), TIMEOUT_S)
            assert stage.observe(disk_holders(claim)).value == [first]
            detach(stage, names[first])
            assert eventually(partial(is_attached, lab, names[second]), TIMEOUT_S)
            assert stage.observe(disk_holders(claim)).value == [second]
            detach(stage, names[second])


def attached_to(lab: LabHandle, names: Mapping[str, str]) -> str:
    """Return the node to which one of these attachments, named by their nodes, is attached."""
    return next((node for node, name in names.items() if is_attached(lab, name)), "")


# Processes that die or freeze during an attach or detach: a disk still belongs to one machine.


KILL_DELAYS_S = (0.0, 0.3)
"""Times from a request to attach or detach to the kill of the driver (s)."""
CALL_SENT_S = 2.0
"""Time in which an attacher calls a frozen driver (s)."""
KillAttacher = Callable[[Machine, str, str, Callable[[], object]], None]
"""Kills an attacher before or after a call caused by the request."""
STILL_S = 20.0
WRITES = 2
FIND_ATTACHER = 'pgrep -f "^[^ ]*/external-attacher "'
FIND_DRIVER = 'pgrep -f "^[^ ]*python[^ ]* .*-m infra.csi "'
ATTACH, DETACH = "ControllerPublishVolume", "ControllerUnpublishVolume"
SMALL_POOL = f"""
mkdir small
mount -n -t tmpfs -o size=64k nodeproof small
{shlex.join(VIRSH)} pool-create-as small dir --target "$PWD/small"
"""
NO_SMALL_POOL = f"{shlex.join(VIRSH)} pool-destroy small; umount -l small; rmdir small"
RESTART_LIBVIRTD = """
pid=$(cat /run/libvirt/libvirtd.pid)
kill -KILL "$pid"
while [ -e "/proc/$pid/exe" ]; do :; done
rm /run/libvirt/libvirtd.pid
libvirtd -d -f /etc/libvirt/libvirtd.conf -p /run/libvirt/libvirtd.pid
"""


@pytest.fixture
def separate_lab(kind: Kind, components: Components) -> Iterator[LabHandle]:
    """Start a lab for this test alone."""
    lab = kind.start(components, kind.nodes)
    try:
        lab.prepare()
        lab.wait_nodes_ready()
        yield lab
    finally:
        lab.down()


def send_signal(attacher: Machine, name: str, find_process: str) -> None:
    """Signal the attacher or its driver; one of them must run."""

    def is_sent() -> bool:
        argv = ["sh", "-c", f"kill -{name} $({find_process})"]
        return attacher.run(argv, timeout_s=COMMAND_TIMEOUT_S).status == 0

    assert eventually(is_sent, TIMEOUT_S), f"no process to send {name} to"


def restart_both(attacher: Machine) -> None:
    """Restart attacher and driver once both have ended."""
    assert eventually(lambda: not attacher.is_powered(), TIMEOUT_S), "one still runs without the other"
    attacher.power("on")


def count_calls(attacher: Machine, method: str, claim: str) -> int:
    """Count the driver's calls of this method for a claim's volume; calls are logged before their answer."""
    lines = attacher.run(["cat", f"{ATTACHER}/calls.jsonl"], timeout_s=COMMAND_TIMEOUT_S).stdout.splitlines()
    calls = (json.loads(line) for line in lines if line.endswith("}"))
    wanted = {"method": method, "volume": handle(claim), "code": "OK"}
    return sum({name: call[name] for name in wanted} == wanted for call in calls)


def kill_before_call(attacher: Machine, method: str, claim: str, request: Callable[[], object]) -> None:
    """Kill the attacher before the driver sees its call."""
    before = count_calls(attacher, method, claim)
    send_signal(attacher, "STOP", FIND_DRIVER)
    request()
    pause(CALL_SENT_S)
    send_signal(attacher, "KILL", FIND_ATTACHER)
    assert eventually(lambda: not attacher.is_powered(), TIMEOUT_S)
    assert count_calls(attacher, method, claim) == before
    restart_both(attacher)


def kill_after_call(attacher: Machine, method: str, claim: str, request: Callable[[], object]) -> None:
    """Kill the attacher after the driver's call and before its answer."""
    before = count_calls(attacher, method, claim)
    send_signal(attacher, "STOP", FIND_DRIVER)
    request()
    pause(CALL_SENT_S)
    send_signal(attacher, "STOP", FIND_ATTACHER)
    send_signal(attacher, "CONT", FIND_DRIVER)
    assert eventually(lambda: count_calls(attacher, method, claim) > before, TIMEOUT_S), (
        "the driver did not get the call"
    )
    send_signal(attacher, "KILL", FIND_ATTACHER)
    restart_both(attacher)


@pytest.mark.night(
    reason="a driver's own calls: tests/unit/test_csi_driver.py; failures of the attacher are rarer"
)
@pytest.mark.parametrize("kill", [kill_before_call, kill_after_call])
def test_call_interrupted_by_an_attacher_kill_completes_later(
    lab: LabHandle, stage: Lab, storage: Volumes, kill: KillAttacher
) -> None:
    (claim,), node = storage.pvcs, stage.target
    attacher, names = lab.fleet.machine(ATTACHER), list[str]()
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        kill(attacher, ATTACH, claim, lambda: names.append(request_attachment(lab, claim, node)))
        (name,) = names
        assert eventually(lambda: is_attached(lab, name), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == [node]
        kill(attacher, DETACH, claim, lambda: delete_attachment(lab, name))
        assert eventually(lambda: is_removed(lab, name), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == []


def force_delete(lab: LabHandle, pod: Pod, attached: str) -> None:
    """Delete a pod by force, and wait until its attachment is being deleted."""
    lab.cluster.api.delete(pod_path(pod.namespace, pod.name), grace_s=0)
    assert eventually(lambda: is_being_deleted(lab, attached), TIMEOUT_S)


def keeps_writing(stage: Lab, pod: Pod) -> bool:
    """Return whether further writes of a pod reach its disk."""

    def on_disk() -> int:
        return int(stage.observe(acknowledged(pod)).value)

    wanted = on_disk() + WRITES
    return eventually(lambda: on_disk() >= wanted, TIMEOUT_S)


@pytest.mark.night(reason="a scenario judges it: scenarios/nongraceful/test_running_machines.py")
@pytest.mark.parametrize("kill", [kill_before_call, kill_after_call])
def test_surviving_writer_loses_no_write_if_an_attacher_is_killed(
    lab: LabHandle, stage: Lab, storage: Volumes, kill: KillAttacher
) -> None:
    skip_without_guests(lab)
    (claim,), node, other = storage.pvcs, stage.target, other_node(lab, stage.target)
    attacher, here = lab.fleet.machine(ATTACHER), attachment(claim, node)
    out_of_service = taint(node, OUT_OF_SERVICE, "NoExecute", "nodeproof")
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        (first,) = stage.run(run_witnesses(Witness(pvc=claim), on=node))
        assert keeps_writing(stage, first)
        with stage.inject(partition(node)), stage.inject(out_of_service):
            kill(attacher, DETACH, claim, lambda: force_delete(lab, first, here))
            (second,) = stage.run(run_witnesses(Witness(pvc=claim), on=other))
            assert stage.observe(disk_holders(claim)).value == [other]
            assert keeps_writing(stage, second)
        lab.wait_nodes_ready()
        assert keeps_writing(stage, second)
        acknowledged_numbers = {by: stage.observe(acknowledged(by)).value for by in (first, second)}
        numbers = {by: stage.observe(last_written(second, by=by.node)).value for by in (first, second)}
        on_it = stage.observe(writes(second)).value
    assert {by.node: numbers[by] >= acknowledged_numbers[by] > 0 for by in acknowledged_numbers} == {
        node: True,
        other: True,
    }, (acknowledged_numbers, numbers)
    assert [on_it[flaw] for flaw in ("lost", "doubled", "torn")] == [[], [], []], on_it


@pytest.mark.night(reason="each side of each call: tests/unit/test_csi_driver.py")
@pytest.mark.parametrize("after_s", KILL_DELAYS_S)
def test_volume_is_attached_and_detached_once_despite_driver_kills(
    lab: LabHandle, stage: Lab, storage: Volumes, after_s: float
) -> None:
    (claim,), node = storage.pvcs, stage.target
    attacher = lab.fleet.machine(ATTACHER)

    def kill_driver() -> None:
        pause(after_s)
        send_signal(attacher, "KILL", FIND_DRIVER)
        restart_both(attacher)

    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        name = request_attachment(lab, claim, node)
        kill_driver()
        assert eventually(lambda: is_attached(lab, name), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == [node]
        delete_attachment(lab, name)
        kill_driver()
        assert eventually(lambda: is_removed(lab, name), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == []


@pytest.mark.night(reason="only machines stand still, and failures of the attacher are rarer")
def test_suspended_machine_keeps_its_disk_and_errors_name_it(
    lab: LabHandle, stage: Lab, storage: Volumes
) -> None:
    skip_without_guests(lab)
    (claim,), node, other = storage.pvcs, stage.target, other_node(lab, stage.target)
    beside = lab.fleet.machine(ATTACHER)

    def signal_qemu(name: str) -> None:
        script = f"kill -{name} $(cat /run/libvirt/qemu/{node}.pid)"
        assert beside.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S).status == 0

    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        signal_qemu("STOP")
        try:
            delete_attachment(lab, first)
            error = {"$contains": f"volume {handle(claim)} is still in node {node} after 10 s"}
            late = became(ATTACHMENTS, first, {"status": {"detachError": {"message": error}}})
            stage.wait_for(late.after(created(ATTACHMENTS, first), windows.up_to(TIMEOUT_S)))
            assert stage.find(late) is not None
            second = request_attachment(lab, claim, other)
            # libvirt may not answer meanwhile; the driver must not report the disk as free.
            assert throughout(lambda: not is_attached(lab, second), STILL_S)
        finally:
            signal_qemu("CONT")
        assert eventually(lambda: is_removed(lab, first), TIMEOUT_S)
        assert eventually(lambda: is_attached(lab, second), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == [other]
        detach(stage, second)


@pytest.mark.night(reason="only guests have a pool, and failures of the attacher are rarer")
def test_volume_for_a_full_pool_is_refused_by_name(lab: LabHandle, stage: Lab) -> None:
    skip_without_guests(lab)
    beside, volume = lab.fleet.machine(ATTACHER), handle("too-large")
    process = beside.run(["sh", "-ec", SMALL_POOL], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr
    try:
        argv = ["sh", DISKS, "--pool=small", "create", "16777216", volume]
        refused = beside.run(argv, timeout_s=COMMAND_TIMEOUT_S)
        assert refused.status == 2
        assert f"volume {volume}" in refused.stderr and "No space left" in refused.stderr, refused.stderr
        left = beside.run(["sh", DISKS, "--pool=small", "holders", volume], timeout_s=COMMAND_TIMEOUT_S)
        assert (left.status, left.stdout) == (0, "")
    finally:
        beside.run(["sh", "-c", NO_SMALL_POOL], timeout_s=COMMAND_TIMEOUT_S)


@pytest.mark.night(reason="its lab has another libvirtd than it began with, and goes")
def test_restarted_libvirtd_keeps_every_disk_in_place(separate_lab: LabHandle, tmp_path: Path) -> None:
    lab, storage = separate_lab, volumes()
    skip_without_guests(lab)
    stage = stage_of(lab, tmp_path)
    (claim,), node, other = storage.pvcs, stage.target, other_node(lab, stage.target)
    beside = lab.fleet.machine(ATTACHER)
    with stage.record(extra_resources=(ATTACHMENTS,)), stage.inject(storage):
        first = attach(stage, claim, node, {"attached": True})
        started = beside.run(["sh", "-ec", RESTART_LIBVIRTD], timeout_s=COMMAND_TIMEOUT_S)
        assert started.status == 0, started.stderr
        assert stage.observe(disk_holders(claim)).value == [node]
        error = f"volume {handle(claim)} is attached to {node}, so not to {other}"
        # A recording with a dead component does not wait.
        second = request_attachment(lab, claim, other)
        assert eventually(lambda: is_refused(lab, second, error), TIMEOUT_S)
        delete_attachment(lab, first)
        assert eventually(lambda: is_removed(lab, first), TIMEOUT_S)
        assert eventually(lambda: is_attached(lab, second), TIMEOUT_S)
        assert stage.observe(disk_holders(claim)).value == [other]
        delete_attachment(lab, second)
        assert eventually(lambda: is_removed(lab, second), TIMEOUT_S)
