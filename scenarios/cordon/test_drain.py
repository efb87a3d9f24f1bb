"""A node that is cordoned and then drained, and the pods on it."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    Moment,
    Stage,
    Workload,
    changed,
    claims,
    cordoned,
    event_reported,
    kubectl,
    needs,
    next_of,
    pod_deletion,
    preferring,
    run_pod,
    shows,
    uncordoned,
    unit_down,
    windows,
    workload,
    written,
)

STARTS_S, LEAVES_S = 30.0, 10.0
OTHERS = ("--force", "--timeout=30s")
"""Pods that no controller would make again stand in a drain's way, too."""


def leaving(pods: Workload) -> Moment:
    return written("pods", {"metadata": {**pods.pods["metadata"], "deletionTimestamp": PRESENT}})


def runs(pods: Workload, node: str) -> Moment:
    return written("pods", {**pods.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})


@claims(
    "cordon.keeps-existing-pods",
    "cordon.direct-binding-bypass",
    "cordon.kubelet-event",
    "cordon.drain-leaves-daemonset",
)
@needs(nodes=3, faulted=1, lasts="4P + 35")
def test_a_cordon_leaves_pods_where_they_are_and_a_drain_leaves_daemons(lab: Stage, judge: Judge) -> None:
    """The kubelet starts anew first: what reports 25 events is heard once in five minutes from then on."""
    node = lab.target
    daemons, replaced = workload("DaemonSet"), workload("Deployment", **preferring(node))
    bound = workload("Deployment", nodeName=node)
    unschedulable, schedulable = cordoned(node), uncordoned(node)
    noticed, noticed_again = (
        event_reported(reason, "Node", node, "") for reason in ("NodeNotSchedulable", "NodeSchedulable")
    )
    refused = kubectl("drain", node, *OTHERS, may_fail=True)
    drain = kubectl("drain", node, "--ignore-daemonsets", *OTHERS, may_fail=True)

    with lab.record():
        with lab.inject(unit_down(node)) as down:
            pass
        renewed = next_of(changed("leases", node, "spec.renewTime", "kube-node-lease"), after=down.healing)
        lab.wait_for(renewed.after(down.healing, windows.recovery()))
        existing = lab.do(run_pod(on=node))
        for each in (daemons, replaced):
            lab.do(each.make)
            lab.wait_for(runs(each, node).after(each.make.begun, windows.prompt(STARTS_S)))
        # The cordon is read from another watch than the pods: only what is looked for from well before it is
        # sure to come after that.
        all_run = runs(replaced, node)
        lab.wait_for(leaving(replaced).never_after(all_run, windows.absence(lab.clear_s)))
        lab.do(kubectl("cordon", node))
        told = lab.wait_for(noticed.after(unschedulable, windows.status_update()))
        lab.do(bound.make)
        bypass = lab.wait_for(runs(bound, node).after(bound.make.begun, windows.prompt(STARTS_S)))
        long_s = 2 * lab.configuration["P"] + lab.quiet_s
        long = windows.absence(long_s)
        lab.wait_for(leaving(daemons).never_after(unschedulable, windows.absence(long_s + lab.clear_s)))
        stay = [
            lab.wait_for(leaves.never_after(since, lasting))
            for since, lasting in ((unschedulable, long), (all_run, windows.absence(lab.clear_s + long_s)))
            for leaves in (
                pod_deletion(existing.namespace, existing.name),
                leaving(daemons),
                leaving(replaced),
            )
        ]
        answer = lab.do(refused)
        drained = lab.do(drain)
        goes = lab.wait_for(leaving(replaced).after(drain.begun, windows.prompt(LEAVES_S)))
        stays = lab.wait_for(leaving(daemons).never_after(drain.begun, windows.absence(lab.quiet_s)))
        lab.do(kubectl("uncordon", node))
        told_again = lab.wait_for(noticed_again.after(schedulable, windows.status_update()))

    for check in (told, told_again):
        judge("cordon.kubelet-event", check)
    judge("cordon.direct-binding-bypass", bypass)
    for check in stay:
        judge("cordon.keeps-existing-pods", check)
    leaves_daemons = (
        shows(answer, {"status": 1, "stderr": {"$contains": "--ignore-daemonsets"}}),
        shows(drained, {"status": 0}),
        goes,
        stays,
    )
    for check in leaves_daemons:
        judge("cordon.drain-leaves-daemonset", check)
