"""Disks that are taken from machines that run: nobody looks whether one that is out of service is off."""

from collections.abc import Mapping

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    ATTACHER,
    OUT_OF_SERVICE,
    PRESENT,
    UNREACHABLE,
    Moment,
    Stage,
    VolumeCalls,
    Witness,
    Workload,
    acknowledged,
    ask,
    attachment,
    became,
    claims,
    condition_became,
    disk_holders,
    grew,
    last_sign,
    last_written,
    lives_on,
    metric,
    needs,
    partition,
    pod_deletion,
    pod_gone,
    pod_of,
    preferring,
    removed,
    run_witnesses,
    shows,
    taint,
    taint_added,
    telling,
    volumes,
    windows,
    workload,
    writes,
    written,
)

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
PODS, GROUP = "/api/v1/namespaces/nodeproof/pods", "/apis/apps/v1/namespaces/nodeproof"
WRITTEN_TO = "one whose disk is written to: nothing could be lost"
COLLECTED = windows.formula("within", "20 + 5", "-slack", "20 + 5 + slack")
"""A pass of the pod garbage collector (windows.POD_GC_S), and what that takes."""
NONE: Mapping[str, object] = {"$in": [[]]}
FLAWLESS: Mapping[str, object] = {"lost": NONE, "doubled": NONE, "torn": NONE}
STARTS_S, AT_ONCE_S, RECOVERS_S, BOTH_S = 90.0, 5.0, 300.0, 20.0
UNMOUNTED_S = 60.0


def detached(name: str) -> Moment:
    """Somebody asked for the end of an attachment."""
    return became(ATTACHMENTS, name, {"metadata": {"deletionTimestamp": PRESENT}})


def running(pods: Workload, node: str) -> Moment:
    return written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})


@claims("out-of-service.detach-ignores-readiness")
@needs(nodes=2, faulted=1, components=(ATTACHER,), features=("real-pods", "volumes"), lasts="60")
def test_a_ready_nodes_disk_is_taken_out_while_it_is_mounted_where_the_taint_was_left(
    lab: Stage, judge: Judge
) -> None:
    """Its pod is deleted by force, and its kubelet has not even ended the container by then."""
    node, storage = lab.target, volumes()
    (claim,) = storage.claims
    here, counter = attachment(claim, node), metric(MANAGER, FORCED, reason="out-of-service")
    taken, unstaged = (VolumeCalls(claim, f"{what}Volume") for what in ("ControllerUnpublish", "NodeUnstage"))
    out = taint_added(node, OUT_OF_SERVICE, "NoSchedule")

    with lab.record(also=(ATTACHMENTS,)), lab.inject(storage):
        (pod,) = lab.do(run_witnesses(Witness(deaf=True, claim=claim), on=node))
        gone, before = pod_gone(pod.namespace, pod.name), lab.look(counter)
        with lab.inject(taint(node, OUT_OF_SERVICE, "NoSchedule", "nodeshutdown")):
            lab.do(ask("DELETE", f"{PODS}/{pod.name}", {"gracePeriodSeconds": 0}))
            at_once = lab.wait_for(detached(here).after(gone, windows.afterwards(AT_ONCE_S)))
            lab.wait_for(removed(ATTACHMENTS, here).after(detached(here), windows.prompt(AT_ONCE_S)))
            holders, after = lab.look(disk_holders(claim)), lab.look(counter)
            ready = [
                condition_became(node, "Ready", status).never_after(out, windows.absence(lab.quiet_s))
                for status in ("False", "Unknown")
            ]
            for check in ready:
                lab.wait_for(check)
            unused = became("nodes", node, {"status": {"volumesInUse": {"$present": False}}})
            lab.wait_for(unused.after(gone, windows.prompt(UNMOUNTED_S)))
        unmounted = unstaged.call.after(taken.call, windows.prompt(UNMOUNTED_S))
        lab.hear(taken, unstaged, pod)

    outlived = last_sign(pod.name).after(taken.call, windows.prompt(AT_ONCE_S))
    for check in (at_once, unmounted, outlived, *ready, shows(holders, NONE), grew(before, after, 1, 1)):
        judge("out-of-service.detach-ignores-readiness", check)


@claims("out-of-service.power-state-not-checked", "partition.two-writers")
@needs(nodes=2, faulted=1, components=(ATTACHER,), features=("real-pods", "volumes"), lasts="G + T + 150")
def test_a_machine_that_is_called_out_of_service_and_runs_loses_its_disk_and_goes_on(
    lab: Stage, judge: Judge
) -> None:
    """A Deployment's pod on a machine that is cut off, and the one that takes its place and its disk."""
    node, other = lab.target, lab.others[0]
    storage, tolerated_s = volumes(), lab.toleration_s
    (claim,) = storage.claims
    here, holders = attachment(claim, node), disk_holders(claim)
    pods = workload(
        "Deployment", **preferring(node), **telling(Witness(claim=claim, tolerates_s=tolerated_s))
    )
    out, replaced = taint_added(node, OUT_OF_SERVICE, "NoExecute"), running(pods, other)

    with lab.record(also=(ATTACHMENTS,)), lab.inject(storage):
        lab.do(pods.make)
        lab.wait_for(running(pods, node).after(pods.make.begun, windows.prompt(STARTS_S)))
        old, plugged_in = lab.do(pod_of(pods, on=node)), lab.look(holders)
        gone, deletion = pod_gone(old.namespace, old.name), pod_deletion(old.namespace, old.name)
        with lab.inject(partition(node)) as cut:
            unknown, unreachable = (
                condition_became(node, "Ready", "Unknown"),
                taint_added(node, UNREACHABLE, "NoExecute"),
            )
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.prompt(AT_ONCE_S)))
            lab.wait_for(deletion.after(unreachable, windows.toleration(tolerated_s)))
            with lab.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                moved = [
                    lab.wait_for(gone.after(out, COLLECTED)),
                    lab.wait_for(detached(here).after(gone, windows.afterwards(AT_ONCE_S))),
                    lab.wait_for(replaced.after(out, windows.prompt(RECOVERS_S))),
                ]
                new, taken = lab.do(pod_of(pods, on=other)), lab.look(holders)
                back = condition_became(node, "Ready", "True")
                lab.wait_for(back.never_after(replaced, windows.absence(BOTH_S)))
                told, found = lab.look(acknowledged(old)), lab.look(last_written(new, by=node))
                lab.expect(told.value > 0, WRITTEN_TO, "look at what its pod says, and try again")
                on_it = lab.look(writes(new))
        lab.wait_for(back.after(cut.healing, windows.recovery()))
        lab.hear(old, new)
        ended = ask("DELETE", f"{GROUP}/deployments/{pods.name}")
        lab.do(ended)
        there = attachment(claim, other)
        lab.wait_for(removed(ATTACHMENTS, there).after(ended.begun, windows.prompt(STARTS_S)))

    for check in (*moved, shows(plugged_in, [node]), shows(taken, [other]), shows(on_it, FLAWLESS)):
        judge("out-of-service.power-state-not-checked", check)
    # Of the last number the disk may have had the line, and the writer no answer.
    judge("out-of-service.power-state-not-checked", grew(told, found, 0, 1))
    judge("out-of-service.power-state-not-checked", lives_on(old.name, out, cut.healing))
    for pod in (old, new):
        judge("partition.two-writers", lives_on(pod.name, replaced, cut.healing))
