"""A node that is not ready though it reports."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    PRESENT,
    UNREACHABLE,
    Moment,
    Stage,
    Workload,
    claims,
    condition_became,
    counted,
    needs,
    ready_patched,
    run_pod,
    taint_added,
    taint_removed,
    windows,
    workload,
    written,
)

PLACED_S = 5.0


def meant_for(pods: Workload, node: str) -> Moment:
    """A DaemonSet's pod, which the scheduler may bind to that node alone."""
    terms = [{"matchFields": [{"key": "metadata.name", "values": [node]}]}]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return written("pods", {**pods.pods, "spec": {"affinity": {"nodeAffinity": affinity}}})


@claims(
    "taints.not-ready-noexecute",
    "conditions.pods-not-marked-on-kubelet-false",
    "daemonset.not-created-on-not-ready",
)
@needs(nodes=2, faulted=1, lasts="20")
def test_a_node_that_is_not_ready_is_tainted_and_its_pods_are_not_marked(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node))
    not_ready, ready_again = (condition_became(node, "Ready", status) for status in ("False", "True"))
    unready = {"type": "Ready", "status": "False"}
    marked = written(
        "pods",
        {"metadata": {"namespace": pod.namespace, "name": pod.name}, "status": {"conditions": [unready]}},
    )
    a_pass_s = 2 * lab.configuration["P"] + 3.0
    a_pass = windows.absence(a_pass_s)
    old, new = workload("DaemonSet"), workload("DaemonSet")
    leaves = written("pods", {"metadata": {**old.pods["metadata"], "deletionTimestamp": PRESENT}})
    other = lab.others[0]
    prompt = windows.prompt(PLACED_S)

    with lab.record():
        lab.do(old.make)
        lab.wait_for(meant_for(old, node).after(old.make.begun, prompt))
        with lab.inject(ready_patched(node)) as cut:
            tainted = lab.wait_for(
                taint_added(node, NOT_READY, "NoExecute").after(not_ready, windows.taint_pass())
            )
            stays_ready = lab.wait_for(marked.never_after(not_ready, a_pass))
            lab.do(new.make)
            daemons = [
                lab.wait_for(meant_for(new, other).after(new.make.begun, prompt)),
                lab.wait_for(leaves.never_after(not_ready, windows.absence_from_before(a_pass_s))),
                meant_for(new, node).never_after(new.make.begun, windows.absence(lab.quiet_s)),
            ]
            longer = windows.absence(lab.quiet_s + lab.clear_s)
            lab.wait_for(meant_for(new, node).never_after(new.make.begun, longer))
        lab.wait_for(ready_again.after(cut.began, windows.recovery()))
        lab.wait_for(taint_removed(node, NOT_READY, "NoExecute").after(ready_again, windows.monitor_pass()))
        daemons.append(lab.wait_for(meant_for(new, node).after(cut.healing, prompt)))

    elsewhere = taint_added(other, NOT_READY, "NoExecute").never_after(not_ready, a_pass)
    opposite = counted(taint_added(node, UNREACHABLE, "NoExecute"), 0, 0, after=cut.began, until=cut.healing)
    for check in (tainted, elsewhere, opposite):
        judge("taints.not-ready-noexecute", check)
    judge("conditions.pods-not-marked-on-kubelet-false", stays_ready)
    for check in daemons:
        judge("daemonset.not-created-on-not-ready", check)
