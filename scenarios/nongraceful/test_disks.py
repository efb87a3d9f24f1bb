"""Disks of a machine that lost its power: their attachments and data, by the API and by the hypervisor."""

from collections.abc import Mapping, Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import (
    ATTACHER,
    OUT_OF_SERVICE,
    UNREACHABLE,
    Pod,
    Witness,
    Workload,
    preferring,
    using_pvc,
    witness_fields,
    workload,
)
from nodeproof.scenario.sources import VolumeCalls
from nodeproof.scenario.types import Moment

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
REFUSED = {"reason": "FailedAttachVolume", "message": {"$contains": "Volume is already "}}
NOTHING_WRITTEN = "the pod wrote nothing to its disk, so nothing could be lost"
NONE: Mapping[str, object] = {"$in": [[]]}
FLAWLESS: Mapping[str, object] = {"lost": NONE, "doubled": NONE, "torn": NONE}
A_PASS_S = windows.POD_GC_S + 2.0
CONTAINER_START_S, AT_ONCE_S, ATTACH_S = 90.0, 5.0, 60.0
RECOVERY_S = 300.0
"""An emulated machine has taken over two minutes from an attached disk to a running container."""
MAX_LATER_WRITES = 60
"""Maximum number of writes between the observation and the fault: one a second."""
GROUP = "/apis/apps/v1/namespaces/nodeproof"


@needs(
    nodes=2,
    faulted=1,
    components=(ATTACHER,),
    features=("power", "real-pods", "volumes"),
    duration_s="G + T + 200",
)
def test_disk_of_dead_machine_stays_attached_until_out_of_service_taint(
    lab: Lab, claim: Expectations
) -> None:
    """A StatefulSet writes to one disk; a Deployment has the other, and replaces its pod at once."""
    node, other, storage = lab.target, lab.others[0], faults.volumes(2)
    volume, out_of_service = storage.pvcs[0], node.taint(OUT_OF_SERVICE).added
    stateful, deployment = workloads_on(node, storage.pvcs, lab.toleration_s)
    pod, new_pod = (Pod(stateful.namespace, f"{stateful.name}-0", name) for name in (node, other))
    disk, other_disk = (faults.attachment(name, node) for name in storage.pvcs)
    new_disk, new_other_disk = (faults.attachment(name, other) for name in storage.pvcs)
    holders, counter = probes.disk_holders(volume), probes.metric(MANAGER, FORCED, reason="out-of-service")
    not_attachable = claim("non-graceful.volume-not-attachable")
    detach, recovery = claim("out-of-service.immediate-detach"), claim("out-of-service.recovers-elsewhere")

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        start_workload(lab, stateful, node)
        start_workload(lab, deployment, node)
        not_attachable.expect_value(lab.observe(holders), [node])
        written_count = lab.observe(probes.acknowledged(pod))
        lab.require_lab(
            written_count.value > 0,
            otherwise=NOTHING_WRITTEN,
            next_step="see the log of the pod, and run it again",
        )
        with lab.inject(faults.power_off(node)) as fault:
            lab.wait_until_lost(node, fault)
            wait_until_terminating(lab, pod.deletion, deployment.deletion)
            expect_disks_to_stay(claim, pod, deployment, [disk, other_disk], other)
            not_attachable.expect_value(lab.observe(holders), NONE)
            before = lab.observe(counter)
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                expect_detachment(claim, pod, disk, out_of_service)
                lab.wait_for(moments.detached(other_disk).after(out_of_service, windows.pod_gc_removal()))
                detach.expect_later(checks.grew(before, lab.observe(counter), 2, 2))
                expect_recovery(claim, stateful, other, (disk, new_disk), out_of_service)
                running = deployment.running_on(other)
                lab.wait_for(running.after(out_of_service, RECOVERY_S))
                read_count = lab.observe(probes.last_written(new_pod, by=node))
                recovery.expect_later(checks.grew(written_count, read_count, 0, MAX_LATER_WRITES))
                recovery.expect_value(lab.observe(probes.writes(new_pod)), FLAWLESS)
        lab.wait_until_ready(node, fault)
        recovery.expect_value(lab.observe(holders), [other])
        expect_calls_of_driver(lab, claim, volume, disk, out_of_service)
        delete_workload(lab, "statefulsets", stateful, new_disk)
        delete_workload(lab, "deployments", deployment, new_other_disk)


def workloads_on(node: str, volume_names: Sequence[str], tolerated_s: int) -> tuple[Workload, Workload]:
    """Return a StatefulSet and a Deployment that prefer a node, each with one of two volumes."""
    volume, other_volume = volume_names
    fields = witness_fields(Witness(pvc=volume, toleration_s=tolerated_s))
    tolerations = fields["tolerations"]
    return (
        workload("StatefulSet", **preferring(node), **fields),
        workload("Deployment", **preferring(node), **using_pvc(other_volume), tolerations=tolerations),
    )


def start_workload(lab: Lab, pods: Workload, node: str) -> None:
    lab.run(pods.make)
    lab.wait_for(pods.running_on(node).after(pods.make.begun, CONTAINER_START_S))
    lab.require(pods.running_on(node), within_s=CONTAINER_START_S, after=pods.make.begun)


def delete_workload(lab: Lab, kind: str, pods: Workload, disk: str) -> None:
    """Delete a workload and wait until its volume is detached."""
    delete = actions.send_request("DELETE", f"{GROUP}/{kind}/{pods.name}")
    lab.run(delete)
    lab.wait_for(moments.detached(disk).after(delete.begun, CONTAINER_START_S))


def wait_until_terminating(lab: Lab, *deletions: Moment) -> None:
    """Wait until the target is tainted as unreachable, and its pods are terminating."""
    unreachable = lab.target.taint(UNREACHABLE).added
    lab.wait_for(unreachable.after(lab.target.unknown, AT_ONCE_S))
    for deletion in deletions:
        lab.wait_for(deletion.after(unreachable, windows.toleration(lab.toleration_s)))


def expect_disks_to_stay(
    claim: Expectations, pod: Pod, deployment: Workload, disks: Sequence[str], other: str
) -> None:
    """Expect that a dead machine keeps its disks while its pods are Terminating."""
    a_pass, from_before = windows.absence(A_PASS_S), windows.absence_including_anchor(A_PASS_S)
    for disk in disks:
        claim("non-graceful.volumeattachment-stays").never(
            moments.detaching(disk), throughout=from_before, after=pod.deletion
        )
    refused = moments.written(
        "events", {**REFUSED, "involvedObject": {"kind": "Pod", "namespace": pod.namespace}}
    )
    running, deletion = deployment.running_on(other), deployment.deletion
    not_attachable = claim("non-graceful.volume-not-attachable")
    not_attachable.expect(refused, within=AT_ONCE_S, after=deletion)
    not_attachable.never(running, throughout=a_pass, after=deletion)


def expect_detachment(claim: Expectations, pod: Pod, disk: str, out_of_service: Moment) -> None:
    """Expect that the pod is removed, and then its disk is detached."""
    detach, two_phases = claim("out-of-service.immediate-detach"), claim("out-of-service.two-phases")
    detach.expect(moments.detaching(disk), within=windows.afterwards(AT_ONCE_S), after=pod.removal)
    detach.expect(moments.detached(disk), within=AT_ONCE_S, after=moments.detaching(disk))
    two_phases.expect(pod.removal, within=windows.pod_gc_removal(), after=out_of_service)
    two_phases.expect_later(checks.in_order(pod.removal, moments.detaching(disk)))


def expect_recovery(
    claim: Expectations, stateful: Workload, other: str, disks: tuple[str, str], out_of_service: Moment
) -> None:
    """Expect that the other node gets the disk, and the pod runs there; `disks` are both attachments."""
    recovery, (old, new) = claim("out-of-service.recovers-elsewhere"), disks
    attached = moments.became(ATTACHMENTS, new, {"status": {"attached": True}})
    running = stateful.running_on(other)
    recovery.expect(moments.created(ATTACHMENTS, new), within=AT_ONCE_S, after=moments.detached(old))
    recovery.expect(attached, within=ATTACH_S, after=out_of_service)
    recovery.expect(running, within=RECOVERY_S, after=out_of_service)


def expect_calls_of_driver(
    lab: Lab, claim: Expectations, volume: str, disk: str, out_of_service: Moment
) -> None:
    """Expect that the driver detached the disk, although no kubelet unstaged it."""
    unstaged, unpublished = (
        VolumeCalls(volume, f"{call}Volume") for call in ("NodeUnstage", "ControllerUnpublish")
    )
    lab.collect(unstaged, unpublished)
    detach, unstaging = claim("out-of-service.immediate-detach"), unstaged.call
    detach.expect_later(unpublished.call, within=AT_ONCE_S, after=moments.detaching(disk))
    detach.expect_none(unstaging, after=out_of_service, until=moments.detached(disk))
