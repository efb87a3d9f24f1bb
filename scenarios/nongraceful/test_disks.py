"""Disks of a machine that lost its power: their attachments and data, by the API and by the hypervisor."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import (
    ATTACHER,
    OUT_OF_SERVICE,
    UNREACHABLE,
    Pod,
    Witness,
    Workload,
    witness_fields,
)
from nodeproof.scenario.sources import VolumeCalls
from nodeproof.scenario.types import Moment

ATTACHMENTS = "volumeattachments"
NONE: dict[str, object] = {"$in": [[]]}
A_PASS_S = windows.POD_GC_S + 2.0
CONTAINER_START_S, AT_ONCE_S = 90.0, 5.0
RECOVERY_S = 300.0
"""An emulated machine has taken over two minutes from an attached disk to a running container."""
MAX_LATER_WRITES = 60
"""Maximum number of writes between the observation and the fault: one a second."""


@needs(
    nodes=2, faulted=1, components=(ATTACHER,), features=("power", "real-pods", "volumes"),
    duration_s="G + T + 200",
)  # fmt: skip
def test_disk_of_dead_machine_stays_attached_until_out_of_service_taint(
    lab: Lab, claim: Expectations
) -> None:
    """A StatefulSet writes to one disk; a Deployment has the other, and replaces its pod at once."""
    node, other, storage = lab.target, lab.others[0], faults.volumes(2)
    volume, other_volume = storage.pvcs
    fields = witness_fields(Witness(pvc=volume, toleration_s=lab.toleration_s))
    stateful = actions.workload("StatefulSet", **actions.preferring(node), **fields)
    other_fields = {**actions.using_pvc(other_volume), "tolerations": fields["tolerations"]}
    deployment = actions.workload("Deployment", **actions.preferring(node), **other_fields)
    pod, new_pod = (Pod(stateful.namespace, f"{stateful.name}-0", name) for name in (node, other))
    disk, other_disk = (faults.attachment(pvc, node) for pvc in storage.pvcs)
    new_disk, new_other_disk = (faults.attachment(pvc, other) for pvc in storage.pvcs)
    holders, counter = probes.disk_holders(volume), probes.forced_detaches("out-of-service")
    out_of_service = node.taint(OUT_OF_SERVICE).added
    not_attachable = claim("non-graceful.volume-not-attachable")
    detach, recovery = claim("out-of-service.immediate-detach"), claim("out-of-service.recovers-elsewhere")

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        for pods in (stateful, deployment):
            lab.start(pods, on=node, within_s=CONTAINER_START_S)
            lab.require(pods.running_on(node), within_s=CONTAINER_START_S, after=pods.make.begun)
        not_attachable.expect_value(lab.observe(holders), [node])
        written_count = lab.observe(probes.acknowledged(pod))
        nothing_written = "the pod wrote nothing to its disk, so nothing could be lost"
        next_step = "see the log of the pod, and run it again"
        lab.require_lab(written_count.value > 0, otherwise=nothing_written, next_step=next_step)
        with lab.inject(faults.power_off(node)) as fault:
            lab.wait_until_lost(node, fault)
            wait_until_terminating(lab, pod.deletion, deployment.deletion)
            expect_disks_to_stay(claim, pod, disk, other_disk)
            expect_no_replacement(claim, deployment, other)
            not_attachable.expect_value(lab.observe(holders), NONE)
            before = lab.observe(counter)
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                expect_detachment(claim, pod, disk, out_of_service)
                lab.wait_for(moments.detached(other_disk).after(out_of_service, windows.pod_gc_removal()))
                detach.expect_later(checks.grew(before, lab.observe(counter), 2, 2))
                expect_new_attachment(claim, disk, new_disk, out_of_service)
                recovery.expect(stateful.running_on(other), within=RECOVERY_S, after=out_of_service)
                lab.wait_for(deployment.running_on(other).after(out_of_service, RECOVERY_S))
                read_count = lab.observe(probes.last_written(new_pod, by=node))
                recovery.expect_later(checks.grew(written_count, read_count, 0, MAX_LATER_WRITES))
                flawless = {"lost": NONE, "doubled": NONE, "torn": NONE}
                recovery.expect_value(lab.observe(probes.writes(new_pod)), flawless)
        lab.wait_until_ready(node, fault)
        recovery.expect_value(lab.observe(holders), [other])
        expect_calls_of_driver(lab, claim, volume, disk, out_of_service)
        delete_and_detach(lab, stateful, new_disk)
        delete_and_detach(lab, deployment, new_other_disk)


def wait_until_terminating(lab: Lab, *deletions: Moment) -> None:
    """Wait until the target is tainted as unreachable, and its pods are terminating."""
    unreachable = lab.target.taint(UNREACHABLE).added
    lab.wait_for(unreachable.after(lab.target.unknown, AT_ONCE_S))
    for deletion in deletions:
        lab.wait_for(deletion.after(unreachable, windows.toleration(lab.toleration_s)))


def expect_disks_to_stay(claim: Expectations, pod: Pod, *disks: str) -> None:
    """Expect that a dead machine keeps its disks while its pods are Terminating."""
    stays, a_pass = claim("non-graceful.volumeattachment-stays"), windows.absence_including_anchor(A_PASS_S)
    for disk in disks:
        stays.never(moments.detaching(disk), throughout=a_pass, after=pod.deletion)


def expect_no_replacement(claim: Expectations, deployment: Workload, other: str) -> None:
    """Expect that another node may not attach the disk, so the new pod does not run."""
    not_attachable = claim("non-graceful.volume-not-attachable")
    about = {"kind": "Pod", "namespace": deployment.namespace}
    message = {"reason": "FailedAttachVolume", "message": {"$contains": "Volume is already "}}
    refused = moments.written("events", {**message, "involvedObject": about})
    not_attachable.expect(refused, within=AT_ONCE_S, after=deployment.deletion)
    not_attachable.never(deployment.running_on(other), throughout=A_PASS_S, after=deployment.deletion)


def expect_detachment(claim: Expectations, pod: Pod, disk: str, out_of_service: Moment) -> None:
    """Expect that the pod is removed, and then its disk is detached."""
    detach, two_phases = claim("out-of-service.immediate-detach"), claim("out-of-service.two-phases")
    detach.expect(moments.detaching(disk), within=windows.afterwards(AT_ONCE_S), after=pod.removal)
    detach.expect(moments.detached(disk), within=AT_ONCE_S, after=moments.detaching(disk))
    two_phases.expect(pod.removal, within=windows.pod_gc_removal(), after=out_of_service)
    two_phases.expect_later(checks.in_order(pod.removal, moments.detaching(disk)))


def expect_new_attachment(claim: Expectations, old: str, new: str, out_of_service: Moment) -> None:
    """Expect that the other node gets the disk, from its attachment `old` to `new`."""
    recovery, creation = claim("out-of-service.recovers-elsewhere"), moments.created(ATTACHMENTS, new)
    recovery.expect(creation, within=AT_ONCE_S, after=moments.detached(old))
    recovery.expect(moments.attached(new), within=60.0, after=out_of_service)


def expect_calls_of_driver(
    lab: Lab, claim: Expectations, volume: str, disk: str, out_of_service: Moment
) -> None:
    """Expect that the driver detached the disk, although no kubelet unstaged it."""
    detach = claim("out-of-service.immediate-detach")
    unstaged = VolumeCalls(volume, "NodeUnstageVolume")
    unpublished = VolumeCalls(volume, "ControllerUnpublishVolume")
    lab.collect(unstaged, unpublished)
    detach.expect_later(unpublished.call, within=AT_ONCE_S, after=moments.detaching(disk))
    detach.expect_none(unstaged.call, after=out_of_service, until=moments.detached(disk))


def delete_and_detach(lab: Lab, pods: Workload, disk: str) -> None:
    """Delete a workload and wait until its volume is detached."""
    delete = actions.send_request("DELETE", pods.path)
    lab.run(delete)
    lab.wait_for(moments.detached(disk).after(delete.begun, CONTAINER_START_S))
