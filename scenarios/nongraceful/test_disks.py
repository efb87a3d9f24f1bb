"""The disks of a machine that lost its power: who may have them, and what is on them afterwards.

A virtual machine's hypervisor plugs them in; it is asked besides the API who has one.
"""

from collections.abc import Mapping, Sequence

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    ATTACHER,
    OUT_OF_SERVICE,
    PRESENT,
    UNREACHABLE,
    Check,
    Moment,
    Pod,
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
    counted,
    disk_holders,
    grew,
    holding,
    in_order,
    last_written,
    made,
    metric,
    needs,
    pod_deletion,
    pod_gone,
    power_off,
    preferring,
    removed,
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
REFUSED = {"reason": "FailedAttachVolume", "message": {"$prefix": "Multi-Attach error"}}
WRITTEN_TO = "one whose disk is written to: nothing could be lost"
COLLECTED = windows.formula("within", "20 + 5", "-slack", "20 + 5 + slack")
"""A pass of the pod garbage collector (windows.POD_GC_S), and what that takes."""
NONE: Mapping[str, object] = {"$in": [[]]}
FLAWLESS: Mapping[str, object] = {"lost": NONE, "doubled": NONE, "torn": NONE}
A_PASS_S = windows.POD_GC_S + 2.0
STARTS_S, AT_ONCE_S, ATTACHED_S = 90.0, 5.0, 60.0
RECOVERS_S = 300.0
"""An emulated machine has taken over two minutes from an attached disk to a container that runs."""
WRITTEN_MEANWHILE = 60
"""So many numbers at most from the look to the cut: one a second."""
GROUP = "/apis/apps/v1/namespaces/nodeproof"
Checks = Mapping[str, Sequence[Check]]


def running(pods: Workload, node: str) -> Moment:
    return written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})


def leaving(pods: Workload) -> Moment:
    return written("pods", {"metadata": {**pods.pods["metadata"], "deletionTimestamp": PRESENT}})


def detached(name: str) -> Moment:
    """Somebody asked for the end of an attachment."""
    return became(ATTACHMENTS, name, {"metadata": {"deletionTimestamp": PRESENT}})


def attached(name: str) -> Moment:
    """A machine has the disk, as its attacher tells."""
    return became(ATTACHMENTS, name, {"status": {"attached": True}})


def make(lab: Stage, pods: Workload, node: str) -> None:
    lab.do(pods.make)
    lab.wait_for(running(pods, node).after(pods.make.begun, windows.prompt(STARTS_S)))
    lab.require(running(pods, node), within_s=STARTS_S, after=pods.make.begun)


def end(lab: Stage, kind: str, pods: Workload, attached: str) -> None:
    """A workload whose volume is detached in peace."""
    deleted = ask("DELETE", f"{GROUP}/{kind}/{pods.name}")
    lab.do(deleted)
    lab.wait_for(removed(ATTACHMENTS, attached).after(deleted.begun, windows.prompt(STARTS_S)))


def about_a_dead_machine(pod: Pod, replaced: Workload, here: Sequence[str], other: str) -> Checks:
    """Of which nobody tells: its pods are asked to leave, and stay, and so does what they hold."""
    deletion, a_pass = pod_deletion(pod.namespace, pod.name), windows.absence(A_PASS_S)
    refused = written("events", {**REFUSED, "involvedObject": {"kind": "Pod", "namespace": pod.namespace}})
    return {
        "non-graceful.volumeattachment-stays": [
            detached(name).never_after(deletion, windows.absence_from_before(A_PASS_S)) for name in here
        ],
        "non-graceful.volume-not-attachable": [
            refused.after(leaving(replaced), windows.prompt(AT_ONCE_S)),
            running(replaced, other).never_after(leaving(replaced), a_pass),
        ],
    }


def about_out_of_service(pod: Pod, here: str) -> Checks:
    """A machine of which somebody tells that it is."""
    tainted, gone = taint_added(pod.node, OUT_OF_SERVICE, "NoExecute"), pod_gone(pod.namespace, pod.name)
    return {
        "out-of-service.immediate-detach": [
            detached(here).after(gone, windows.afterwards(AT_ONCE_S)),
            removed(ATTACHMENTS, here).after(detached(here), windows.prompt(AT_ONCE_S)),
        ],
        "out-of-service.two-phases": [
            gone.after(tainted, COLLECTED),
            in_order(gone, detached(here)),
        ],
    }


def about_what_comes_back(moves: Workload, here: str, there: str, tainted: Moment, other: str) -> Checks:
    return {
        "out-of-service.recovers-elsewhere": [
            made(ATTACHMENTS, there).after(removed(ATTACHMENTS, here), windows.prompt(AT_ONCE_S)),
            attached(there).after(tainted, windows.prompt(ATTACHED_S)),
            running(moves, other).after(tainted, windows.prompt(RECOVERS_S)),
        ],
    }


def wait(lab: Stage, promised: Checks) -> list[tuple[str, Check]]:
    """For each that comes by itself; gives them, with their claims."""
    checks = [(claim, check) for claim, several in promised.items() for check in several]
    for _claim, check in checks:
        if check.name in ("after", "never"):
            lab.wait_for(check)
    return checks


@claims(
    "non-graceful.volumeattachment-stays",
    "non-graceful.volume-not-attachable",
    *(f"out-of-service.{name}" for name in ("immediate-detach", "two-phases", "recovers-elsewhere")),
)
@needs(
    nodes=2,
    faulted=1,
    components=(ATTACHER,),
    features=("power", "real-pods", "volumes"),
    lasts="G + T + 200",
)
def test_a_disk_stays_with_a_dead_machine_until_that_is_called_out_of_service(
    lab: Stage, judge: Judge
) -> None:
    """A StatefulSet writes to one; a Deployment has another, and makes a pod for it elsewhere at once."""
    node, other = lab.target, lab.others[0]
    storage, tolerated_s = volumes(2), lab.toleration_s
    kept, wanted = storage.claims
    writer = Witness(claim=kept, tolerates_s=tolerated_s)
    moves = workload("StatefulSet", **preferring(node), **telling(writer))
    tolerations = telling(writer)["tolerations"]
    replaced = workload("Deployment", **preferring(node), **holding(wanted), tolerations=tolerations)
    pod, anew = (Pod(moves.namespace, f"{moves.name}-0", each) for each in (node, other))
    here = [attachment(claim, node) for claim in storage.claims]
    holders, counter = disk_holders(kept), metric(MANAGER, FORCED, reason="out-of-service")
    unstaged, unpublished = (
        VolumeCalls(kept, f"{what}Volume") for what in ("NodeUnstage", "ControllerUnpublish")
    )
    tainted = taint_added(node, OUT_OF_SERVICE, "NoExecute")

    with lab.record(also=(ATTACHMENTS,)), lab.inject(storage):
        make(lab, moves, node)
        make(lab, replaced, node)
        plugged_in, told = lab.look(holders), lab.look(acknowledged(pod))
        lab.expect(told.value > 0, WRITTEN_TO, "look at what its pod says, and try again")
        with lab.inject(power_off(node)) as cut:
            unknown = condition_became(node, "Ready", "Unknown")
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            unreachable = taint_added(node, UNREACHABLE, "NoExecute")
            lab.wait_for(unreachable.after(unknown, windows.prompt(AT_ONCE_S)))
            for each in (pod_deletion(pod.namespace, pod.name), leaving(replaced)):
                lab.wait_for(each.after(unreachable, windows.toleration(tolerated_s)))
            checks = wait(lab, about_a_dead_machine(pod, replaced, here, other))
            for name in here:
                longer = windows.absence(A_PASS_S + lab.clear_s)
                lab.wait_for(detached(name).never_after(pod_deletion(pod.namespace, pod.name), longer))
            nobodys, before = lab.look(holders), lab.look(counter)
            with lab.inject(taint(node, OUT_OF_SERVICE, "NoExecute", "nodeshutdown")):
                checks += wait(lab, about_out_of_service(pod, here[0]))
                lab.wait_for(removed(ATTACHMENTS, here[1]).after(tainted, COLLECTED))
                after, there = lab.look(counter), attachment(kept, other)
                checks += wait(lab, about_what_comes_back(moves, here[0], there, tainted, other))
                lab.wait_for(running(replaced, other).after(tainted, windows.prompt(RECOVERS_S)))
                found, on_it = lab.look(last_written(anew, by=node)), lab.look(writes(anew))
        lab.wait_for(condition_became(node, "Ready", "True").after(cut.healing, windows.recovery()))
        moved = lab.look(holders)
        lab.hear(unstaged, unpublished)
        end(lab, "statefulsets", moves, there)
        end(lab, "deployments", replaced, attachment(wanted, other))

    for claim, check in checks:
        judge(claim, check)
    judge("non-graceful.volume-not-attachable", shows(plugged_in, [node]))
    judge("non-graceful.volume-not-attachable", shows(nobodys, NONE))
    asked = unpublished.call.after(detached(here[0]), windows.prompt(AT_ONCE_S))
    judge("out-of-service.immediate-detach", asked)
    judge("out-of-service.immediate-detach", grew(before, after, 2, 2))
    never = counted(unstaged.call, 0, 0, after=tainted, until=removed(ATTACHMENTS, here[0]))
    judge("out-of-service.immediate-detach", never)
    judge("out-of-service.recovers-elsewhere", grew(told, found, 0, WRITTEN_MEANWHILE))
    judge("out-of-service.recovers-elsewhere", shows(on_it, FLAWLESS))
    judge("out-of-service.recovers-elsewhere", shows(moved, [other]))
