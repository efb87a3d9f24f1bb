"""Disks detached from running machines: no controller checks whether an out-of-service node is off."""

from collections.abc import Mapping

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import (
    ATTACHER,
    OUT_OF_SERVICE,
    UNREACHABLE,
    Pod,
    Witness,
    preferring,
    witness_fields,
    workload,
)
from nodeproof.scenario.sources import VolumeCalls
from nodeproof.scenario.types import Injection

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
PODS, GROUP = "/api/v1/namespaces/nodeproof/pods", "/apis/apps/v1/namespaces/nodeproof"
NOTHING_WRITTEN = "the pod wrote nothing to its disk, so nothing could be lost"
NONE: Mapping[str, object] = {"$in": [[]]}
FLAWLESS: Mapping[str, object] = {"lost": NONE, "doubled": NONE, "torn": NONE}
CONTAINER_START_S, AT_ONCE_S, RECOVERY_S, OVERLAP_S = 90.0, 5.0, 300.0, 20.0
UNMOUNT_S = 60.0


@needs(nodes=2, faulted=1, components=(ATTACHER,), features=("real-pods", "volumes"), duration_s="60")
def test_leftover_out_of_service_taint_detaches_disk_of_ready_node(lab: Lab, claim: Expectations) -> None:
    """Its pod is deleted by force, and the container still runs then."""
    node, storage = lab.target, faults.volumes()
    (pvc,) = storage.pvcs
    disk, counter = faults.attachment(pvc, node), probes.metric(MANAGER, FORCED, reason="out-of-service")
    unpublish, unstage = (
        VolumeCalls(pvc, f"{call}Volume") for call in ("ControllerUnpublish", "NodeUnstage")
    )
    out_of_service = node.taint(OUT_OF_SERVICE, "NoSchedule").added
    detach = claim("out-of-service.detach-ignores-readiness")

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        (pod,) = lab.run(actions.run_witnesses(Witness(ignores_sigterm=True, pvc=pvc), on=node))
        before = lab.observe(counter)
        with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoSchedule", "nodeshutdown")):
            lab.run(actions.send_request("DELETE", f"{PODS}/{pod.name}", {"gracePeriodSeconds": 0}))
            detach.expect(moments.detaching(disk), within=windows.afterwards(AT_ONCE_S), after=pod.removal)
            lab.wait_for(moments.detached(disk).after(moments.detaching(disk), AT_ONCE_S))
            detach.expect_value(lab.observe(probes.disk_holders(pvc)), NONE)
            detach.expect_later(checks.grew(before, lab.observe(counter), 1, 1))
            for unready in (node.not_ready, node.unknown):
                detach.never(unready, throughout=lab.quiet_s, after=out_of_service)
            not_in_use = node.became({"status": {"volumesInUse": {"$present": False}}})
            lab.wait_for(not_in_use.after(pod.removal, UNMOUNT_S))
        lab.collect(unpublish, unstage, pod)

    detach.expect_later(unstage.call, within=UNMOUNT_S, after=unpublish.call)
    detach.expect_later(pod.last_sign, within=AT_ONCE_S, after=unpublish.call)


@needs(
    nodes=2, faulted=1, components=(ATTACHER,), features=("real-pods", "volumes"), duration_s="G + T + 150"
)
def test_running_machine_loses_its_disk_if_it_is_out_of_service(lab: Lab, claim: Expectations) -> None:
    """The node is partitioned; the replacement pod of the Deployment gets the disk."""
    node, other, storage = lab.target, lab.others[0], faults.volumes()
    (pvc,) = storage.pvcs
    holders, power_state = probes.disk_holders(pvc), claim("out-of-service.power-state-not-checked")
    witness = Witness(pvc=pvc, toleration_s=lab.toleration_s)
    pods = workload("Deployment", **preferring(node), **witness_fields(witness))
    out_of_service, replaced = node.taint(OUT_OF_SERVICE).added, pods.running_on(other)

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        lab.run(pods.make)
        lab.wait_for(pods.running_on(node).after(pods.make.begun, CONTAINER_START_S))
        old = lab.run(actions.pod_of(pods, on=node))
        power_state.expect_value(lab.observe(holders), [node])
        with lab.inject(faults.partition(node)) as fault:
            wait_until_terminating(lab, old, fault)
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                power_state.expect(old.removal, within=windows.pod_gc_removal(), after=out_of_service)
                detachment = moments.detaching(faults.attachment(pvc, node))
                power_state.expect(detachment, within=windows.afterwards(AT_ONCE_S), after=old.removal)
                power_state.expect(replaced, within=RECOVERY_S, after=out_of_service)
                new = lab.run(actions.pod_of(pods, on=other))
                power_state.expect_value(lab.observe(holders), [other])
                lab.wait_for(node.ready.never_after(replaced, OVERLAP_S))
                expect_flawless_writes(lab, claim, old, new)
        lab.wait_until_ready(node, fault)
        lab.collect(old, new)
        delete = actions.send_request("DELETE", f"{GROUP}/deployments/{pods.name}")
        lab.run(delete)
        new_disk = faults.attachment(pvc, other)
        lab.wait_for(moments.detached(new_disk).after(delete.begun, CONTAINER_START_S))

    power_state.expect_later(checks.stays_alive(old.name, out_of_service, fault.healing_at))
    for pod in (old, new):
        claim("partition.two-writers").expect_later(checks.stays_alive(pod.name, replaced, fault.healing_at))


def wait_until_terminating(lab: Lab, pod: Pod, fault: Injection) -> None:
    """Wait until the node is unreachable and the pod is deleted after its toleration."""
    unknown, unreachable = lab.target.unknown, lab.target.taint(UNREACHABLE).added
    lab.wait_for(unknown.after(fault.injected_at, windows.detection_from_fault()))
    lab.wait_for(unreachable.after(unknown, AT_ONCE_S))
    lab.wait_for(pod.deletion.after(unreachable, windows.toleration(lab.toleration_s)))


def expect_flawless_writes(lab: Lab, claim: Expectations, old: Pod, new: Pod) -> None:
    """Expect that the new pod reads all that the old one wrote, and that no line is lost, doubled or torn."""
    power_state = claim("out-of-service.power-state-not-checked")
    written_count = lab.observe(probes.acknowledged(old))
    read_count = lab.observe(probes.last_written(new, by=lab.target))
    lab.require_lab(
        written_count.value > 0,
        otherwise=NOTHING_WRITTEN,
        next_step="see the log of the pod, and run it again",
    )
    # The last number may be on the disk without an answer to the writer.
    power_state.expect_later(checks.grew(written_count, read_count, 0, 1))
    power_state.expect_value(lab.observe(probes.writes(new)), FLAWLESS)
