"""Disks detached from running machines: no controller checks whether an out-of-service node is off."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import ATTACHER, OUT_OF_SERVICE, UNREACHABLE, Pod, Witness, witness_fields
from nodeproof.scenario.sources import VolumeCalls

NONE: dict[str, object] = {"$in": [[]]}
CONTAINER_START_S, AT_ONCE_S, UNMOUNT_S = 90.0, 5.0, 60.0


@needs(nodes=2, faulted=1, components=(ATTACHER,), features=("real-pods", "volumes"), duration_s="60")
def test_leftover_out_of_service_taint_detaches_disk_of_ready_node(lab: Lab, claim: Expectations) -> None:
    """Its pod is deleted by force, and the container still runs then."""
    node, storage, detach = lab.target, faults.volumes(), claim("out-of-service.detach-ignores-readiness")
    (pvc,) = storage.pvcs
    disk, counter = faults.attachment(pvc, node), probes.forced_detaches("out-of-service")
    unpublish, unstage = VolumeCalls(pvc, "ControllerUnpublishVolume"), VolumeCalls(pvc, "NodeUnstageVolume")
    out_of_service = node.taint(OUT_OF_SERVICE, "NoSchedule").added

    with lab.record(extra_resources=("volumeattachments",)), lab.inject(storage):
        (pod,) = lab.run(actions.run_witnesses(Witness(ignores_sigterm=True, pvc=pvc), on=node))
        before = lab.observe(counter)
        with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoSchedule", "nodeshutdown")):
            lab.run(actions.send_request("DELETE", pod.path, {"gracePeriodSeconds": 0}))
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
    fields = witness_fields(Witness(pvc=pvc, toleration_s=lab.toleration_s))
    pods = actions.workload("Deployment", **actions.preferring(node), **fields)
    out_of_service, replaced = node.taint(OUT_OF_SERVICE).added, pods.running_on(other)

    with lab.record(extra_resources=("volumeattachments",)), lab.inject(storage):
        lab.start(pods, on=node, within_s=CONTAINER_START_S)
        old = lab.run(actions.pod_of(pods, on=node))
        power_state.expect_value(lab.observe(holders), [node])
        with lab.inject(faults.partition(node)) as fault:
            unreachable = node.taint(UNREACHABLE).added
            lab.wait_until_lost(node, fault)
            lab.wait_for(unreachable.after(node.unknown, AT_ONCE_S))
            lab.wait_for(old.deletion.after(unreachable, windows.toleration(lab.toleration_s)))
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                power_state.expect(old.removal, within=windows.pod_gc_removal(), after=out_of_service)
                detachment = moments.detaching(faults.attachment(pvc, node))
                power_state.expect(detachment, within=windows.afterwards(AT_ONCE_S), after=old.removal)
                power_state.expect(replaced, within=300.0, after=out_of_service)
                new = lab.run(actions.pod_of(pods, on=other))
                power_state.expect_value(lab.observe(holders), [other])
                lab.wait_for(node.ready.never_after(replaced, 20.0))
                expect_flawless_writes(lab, claim, old, new)
        lab.wait_until_ready(node, fault)
        lab.collect(old, new)
        delete = actions.send_request("DELETE", pods.path)
        lab.run(delete)
        detachment = moments.detached(faults.attachment(pvc, other))
        lab.wait_for(detachment.after(delete.begun, CONTAINER_START_S))

    power_state.expect_later(checks.stays_alive(old.name, out_of_service, fault.healing_at))
    for pod in (old, new):
        claim("partition.two-writers").expect_later(checks.stays_alive(pod.name, replaced, fault.healing_at))


def expect_flawless_writes(lab: Lab, claim: Expectations, old: Pod, new: Pod) -> None:
    """Expect that the new pod reads all that the old one wrote, and that no line is lost, doubled or torn."""
    power_state = claim("out-of-service.power-state-not-checked")
    written_count = lab.observe(probes.acknowledged(old))
    read_count = lab.observe(probes.last_written(new, by=lab.target))
    nothing_written = "the pod wrote nothing to its disk, so nothing could be lost"
    next_step = "see the log of the pod, and run it again"
    lab.require_lab(written_count.value > 0, otherwise=nothing_written, next_step=next_step)
    # The last number may be on the disk without an answer to the writer.
    power_state.expect_later(checks.grew(written_count, read_count, 0, 1))
    flawless = {"lost": NONE, "doubled": NONE, "torn": NONE}
    power_state.expect_value(lab.observe(probes.writes(new)), flawless)
