"""A volume of a node that lost its power: when it is detached by force, and that it can be told never to be.

Attach/detach controller, external-attacher and the kubelets' volume managers are upstream's. The disks are
files of a table, and what a kubelet mounts are folders.
"""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    ATTACHER,
    PRESENT,
    Check,
    Moment,
    Pod,
    Stage,
    ask,
    attachment,
    became,
    claims,
    condition_became,
    grew,
    holding,
    made,
    metric,
    needs,
    pending_pod,
    pod_gone,
    power_off,
    removed,
    settings,
    shows,
    taint,
    taint_added,
    volumes,
    windows,
)

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
OUT_OF_SERVICE, REASONS = "node.kubernetes.io/out-of-service", ("timeout", "out-of-service")
PODS = "/api/v1/namespaces/nodeproof/pods"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
SIX_MINUTES = windows.formula("period", "360", "360 - slack", "360 + 1 + slack")
"""ReconcilerMaxWaitForUnmountDuration, and two rounds of the reconciler, which goes round each 100 ms
(pkg/controller/volume/attachdetach/attach_detach_controller.go).
"""
LONGER_S = 380.0
STARTS_S, AT_ONCE_S, CLEAN_S = 60.0, 5.0, 60.0


def runs(pod: Pod) -> Moment:
    return became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)


def detached(name: str) -> Moment:
    """Somebody asked for the end of an attachment."""
    return became(ATTACHMENTS, name, {"metadata": {"deletionTimestamp": PRESENT}})


def gone(name: str) -> Moment:
    return removed(ATTACHMENTS, name)


def let_it_run(lab: Stage, node: str, claim: str) -> Pod:
    """A pod with a volume, and its kubelet has seen that it is attached."""
    pod = lab.do(pending_pod(only_on=node, **holding(claim)))
    attached = became(ATTACHMENTS, attachment(claim, node), {"status": {"attached": True}})
    lab.wait_for(runs(pod).after(attached, windows.prompt(STARTS_S)))
    lab.require(runs(pod), within_s=STARTS_S, after=attached)
    return pod


def force(lab: Stage, pod: Pod) -> None:
    """Delete a pod as an administrator does who knows that its machine is off."""
    lab.do(ask("DELETE", f"{PODS}/{pod.name}", {"gracePeriodSeconds": 0}))
    lab.wait_for(pod_gone(pod.namespace, pod.name).after(runs(pod), windows.prompt(STARTS_S)))


def let_it_go(lab: Stage, pod: Pod, attached: str) -> Check:
    """Delete a pod of a node that is well, and wait until its volume is detached in peace."""
    deleted = ask("DELETE", f"{PODS}/{pod.name}")
    lab.do(deleted)
    return lab.wait_for(gone(attached).after(deleted.begun, windows.prompt(CLEAN_S)))


@claims("non-graceful.force-detach-timeout")
@needs(
    nodes=2,
    faulted=1,
    components=(ATTACHER,),
    features=("power", "volumes"),
    profile="documented",
    lasts="460",
)
def test_a_dead_nodes_volume_is_detached_by_force_after_six_minutes(lab: Stage, judge: Judge) -> None:
    """Its pod was deleted by force; one on another node waits for the volume, and has it then."""
    node, other = lab.target, lab.others[0]
    counter, ready = metric(MANAGER, FORCED, reason="timeout"), condition_became(node, "Ready", "True")
    storage = volumes()
    (claim,) = storage.claims
    here, there = attachment(claim, node), attachment(claim, other)

    with lab.record(also=(ATTACHMENTS,)), lab.inject(storage):
        pod = let_it_run(lab, node, claim)
        before = lab.look(counter)
        with lab.inject(power_off(node)) as cut:
            force(lab, pod)
            waiting = lab.do(pending_pod(only_on=other, **holding(claim)))
            left = pod_gone(pod.namespace, pod.name)
            checks = [
                lab.wait_for(detached(here).after(left, SIX_MINUTES)),
                lab.wait_for(gone(here).after(detached(here), windows.prompt(AT_ONCE_S))),
                lab.wait_for(made(ATTACHMENTS, there).after(gone(here), windows.prompt(AT_ONCE_S))),
                lab.wait_for(runs(waiting).after(made(ATTACHMENTS, there), windows.prompt(STARTS_S))),
            ]
            after = lab.look(counter)
        lab.wait_for(ready.after(cut.healing, windows.recovery()))
        let_it_go(lab, waiting, there)

    for check in checks:
        judge("non-graceful.force-detach-timeout", check)
    judge("non-graceful.force-detach-timeout", grew(before, after, 1, 1))


# In two zones, so that it has a lab of its own beside the other, which waits as long.
@claims("non-graceful.force-detach-disable")
@needs(
    nodes=4, zones=2, faulted=1, components=(ATTACHER, MANAGER), features=("power", "volumes"),
    profile="documented", lasts="480",
)  # fmt: skip
def test_a_dead_nodes_volume_stays_attached_where_that_is_disabled(lab: Stage, judge: Judge) -> None:
    """Until somebody says that the node is out of service."""
    node, storage = lab.target, volumes()
    (claim,) = storage.claims
    here, counters = attachment(claim, node), [metric(MANAGER, FORCED, reason=reason) for reason in REASONS]

    with (
        lab.record(also=(ATTACHMENTS,)),
        lab.inject(settings(MANAGER, disable_force_detach_on_timeout="true")),
        lab.inject(storage),
    ):
        pod = let_it_run(lab, node, claim)
        with lab.inject(power_off(node)) as cut:
            force(lab, pod)
            left = pod_gone(pod.namespace, pod.name)
            stays = detached(here).never_after(left, windows.absence_from_before(LONGER_S))
            lab.wait_for(detached(here).never_after(left, windows.absence(LONGER_S + lab.clear_s)))
            with lab.inject(taint(node, OUT_OF_SERVICE, "NoExecute")):
                tainted = taint_added(node, OUT_OF_SERVICE, "NoExecute")
                goes = lab.wait_for(detached(here).after(tainted, windows.prompt(AT_ONCE_S)))
                lab.wait_for(gone(here).after(detached(here), windows.prompt(AT_ONCE_S)))
                timeouts, others = (lab.look(counter) for counter in counters)
        lab.wait_for(condition_became(node, "Ready", "True").after(cut.healing, windows.recovery()))

    for check in (stays, goes, shows(timeouts, {"$in": [None, 0]}), shows(others, 1)):
        judge("non-graceful.force-detach-disable", check)
