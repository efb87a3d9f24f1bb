"""A controller manager that starts anew, and the clocks that it had in memory alone."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Moment,
    Pod,
    Stage,
    ask,
    claims,
    condition_became,
    event_reported,
    metric,
    needs,
    next_of,
    partition,
    pending_pod,
    pod_created,
    pod_deletion,
    removed,
    run_pod,
    settings,
    shows,
    taint_added,
    try_flags,
    windows,
)

MANAGER, DELETIONS = "kube-controller-manager", "taint_eviction_controller_pod_deletions_total"
TOLERATED = 4
"""Tolerations of a profile: more than a controller manager takes to start."""
NOWHERE, PODS = "nowhere", "/api/v1/namespaces/nodeproof/pods"
KEPT, COLLECTED_S, LONGER_S = 3, 30.0, 10.0
"""How many finished pods are kept; the collector looks at its start, and each 20 s."""
APART, LONG = windows.absence(2.0), windows.absence(COLLECTED_S)


def gone(pod: Pod) -> Moment:
    return removed("pods", pod.name, pod.namespace)


@claims("monitoring.controller-restart-resets", "eviction.controller-restart-resets", "eviction.metrics")
@needs(nodes=3, faulted=2, components=(MANAGER,), lasts="2G + 120")
def test_a_new_controller_manager_starts_all_clocks_anew(lab: Stage, judge: Judge) -> None:
    """It forgets when it last heard of a silent node, and since when a pod has tolerated a lost one."""
    lost, silent = lab.targets
    tolerated_s = TOLERATED * lab.toleration_s
    pod = lab.do(run_pod(on=lost, tolerates_unreachable_s=tolerated_s))
    lost_at, silent_at = (condition_became(node, "Ready", "Unknown") for node in (lost, silent))
    tainted, deletion = taint_added(lost, UNREACHABLE, "NoExecute"), pod_deletion(pod.namespace, pod.name)
    # Half of it was over before. A pass comes each P from the first on: it ends with one.
    grace = windows.formula("period", "G", "G - P - slack", "G + 2P + 1 + slack")
    tolerated = f"{tolerated_s}"
    patience = windows.formula("period", tolerated, f"{tolerated} - P - slack", f"{tolerated} + P + slack")

    with lab.record(), lab.inject(partition(lost)) as cut:
        lab.wait_for(lost_at.after(cut.began, windows.detection_from_fault()))
        lab.wait_for(tainted.after(lost_at, windows.taint_pass()))
        with lab.inject(partition(silent)) as silence:
            half = windows.absence(lab.configuration["G"] / 2)
            lab.wait_for(silent_at.never_after(silence.began, half))
            with lab.inject(settings(MANAGER, v="1")) as restarted:
                begins = next_of(event_reported("RegisteredNode", "Node", silent, ""), after=restarted.began)
                late = lab.wait_for(silent_at.after(begins, grace))
                again = next_of(tainted, after=begins)
                waits = lab.wait_for(deletion.after(again, patience))
                counted_anew = lab.look(metric(MANAGER, DELETIONS))

    judge("monitoring.controller-restart-resets", late)
    judge("eviction.controller-restart-resets", waits)
    judge("eviction.metrics", shows(counted_anew, 1))


@claims("eviction.separate-controller", "deletion-gc.terminated-threshold")
@needs(nodes=2, faulted=1, components=(MANAGER,), lasts="G + 90")
def test_a_controller_manager_that_does_not_run_its_taint_eviction_evicts_nobody(
    lab: Stage, judge: Judge
) -> None:
    """And one that keeps few finished pods collects the others, the oldest first."""
    node = lab.target
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    tainted, deletion = taint_added(node, UNREACHABLE, "NoExecute"), pod_deletion(pod.namespace, pod.name)
    lost = condition_became(node, "Ready", "Unknown")
    told = settings(
        MANAGER, controllers="*,-taint-eviction-controller", terminated_pod_gc_threshold=str(KEPT)
    )

    with lab.record():
        oldest = lab.do(pending_pod(only_on=NOWHERE))
        lab.wait_for(gone(oldest).never_after(pod_created(oldest.namespace, oldest.name), APART))
        others = [lab.do(pending_pod(only_on=NOWHERE)) for _each in range(KEPT)]
        for each in (oldest, *others):
            lab.do(ask("PATCH", f"{PODS}/{each.name}/status", {"status": {"phase": "Failed"}}))
        with lab.inject(told) as restarted:
            collected = lab.wait_for(gone(oldest).after(restarted.began, windows.prompt(COLLECTED_S)))
            with lab.inject(partition(node)) as cut:
                lab.wait_for(lost.after(cut.began, windows.detection_from_fault()))
                marked = lab.wait_for(tainted.after(lost, windows.taint_pass()))
                longer = windows.absence(lab.toleration_s + LONGER_S)
                evicted = lab.wait_for(deletion.never_after(tainted, longer))
            kept = [lab.wait_for(gone(each).never_after(restarted.began, LONG)) for each in others]

    for check in (marked, evicted):
        judge("eviction.separate-controller", check)
    for check in (collected, *kept):
        judge("deletion-gc.terminated-threshold", check)


@claims("eviction.pod-eviction-timeout-flag")
@needs(nodes=2)
def test_a_controller_manager_takes_no_eviction_timeout(lab: Stage, judge: Judge) -> None:
    """It had no effect from 1.18 on, and is gone since 1.27."""
    with lab.record():
        refused = lab.do(try_flags(MANAGER, "--pod-eviction-timeout=5m"))
    unknown = {"status": {"$not": 0}, "stderr": {"$contains": "unknown flag: --pod-eviction-timeout"}}
    judge("eviction.pod-eviction-timeout-flag", shows(refused, unknown))
