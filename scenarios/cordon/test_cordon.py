"""Cordon: a node that takes no new pods, and says so in its spec, not in a condition."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNSCHEDULABLE,
    Stage,
    changed,
    claims,
    conditions_changed,
    cordoned,
    counted,
    kubectl,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    shows,
    taint_added,
    taint_removed,
    uncordoned,
    windows,
)


@claims("cordon.blocks-new-pods", "cordon.display", "cordon.not-a-condition", "cordon.taint")
@needs(nodes=2, lasts="6R")
def test_a_cordoned_node_gets_no_pods_and_no_condition(lab: Stage, judge: Judge) -> None:
    node = lab.target
    tainted, untainted = (made(node, UNSCHEDULABLE, "NoSchedule") for made in (taint_added, taint_removed))
    conditions = (conditions_changed(node), changed("nodes", node, "status.conditions[].status"))
    uncordon = kubectl("uncordon", node)

    with lab.record():
        lab.do(kubectl("cordon", node))
        taints = [lab.wait_for(tainted.after(cordoned(node), windows.prompt(5)))]
        pod = lab.do(pending_pod(only_on=node))
        created, bound = pod_created(pod.namespace, pod.name), pod_bound(pod.namespace, pod.name)
        tried = lab.wait_for(pod_unschedulable(pod.namespace, pod.name).after(created, windows.prompt(2)))
        unbound = lab.wait_for(bound.never_after(created, windows.absence(lab.quiet_s)))
        same = [
            lab.wait_for(each.never_after(cordoned(node), windows.absence(lab.quiet_s)))
            for each in conditions
        ]
        cordoned_row = lab.do(kubectl("get", "node", node))
        lab.do(uncordon)
        taints.append(lab.wait_for(untainted.after(uncordoned(node), windows.prompt(5))))
        released = lab.wait_for(bound.after(uncordoned(node), windows.prompt(windows.BIND_S)))

        row = lab.do(kubectl("get", "node", node))

    judge("cordon.display", shows(cordoned_row, {"stdout": {"$contains": "Ready,SchedulingDisabled"}}))
    judge("cordon.display", shows(row, {"stdout": {"$not": {"$contains": "SchedulingDisabled"}}}))
    for check in (tried, unbound, released):
        judge("cordon.blocks-new-pods", check)
    all_the_while = [counted(each, 0, 0, after=cordoned(node), until=uncordon.ended) for each in conditions]
    for check in (*same, *all_the_while):
        judge("cordon.not-a-condition", check)
    for check in taints:
        judge("cordon.taint", check)
