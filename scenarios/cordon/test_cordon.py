"""A cordoned node gets no new pods, and has the state in its spec, not in a condition."""

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, windows
from nodeproof.scenario.kubernetes import UNSCHEDULABLE

DESCRIBED = {"stdout": {"$contains": "Unschedulable:      true"}}


@needs(nodes=2, duration_s="6R")
def test_cordoned_node_gets_no_new_pods_and_no_condition(lab: Lab, claim: Expectations) -> None:
    node, uncordon = lab.target, actions.kubectl("uncordon", lab.target)
    taint = node.taint(UNSCHEDULABLE, "NoSchedule")
    blocks, display = claim("cordon.blocks-new-pods"), claim("cordon.display")

    with lab.record():
        lab.run(actions.kubectl("cordon", node))
        claim("cordon.taint").expect(taint.added, within=5, after=node.cordoned)
        pod = lab.run(actions.pending_pod(only_on=node))
        blocks.expect(pod.unschedulable, within=2, after=pod.created)
        blocks.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
        status_changed = moments.changed("nodes", node, "status.conditions[].status")
        for change in (moments.conditions_changed(node), status_changed):
            not_a_condition = claim("cordon.not-a-condition")
            not_a_condition.never(change, throughout=lab.quiet_s, after=node.cordoned)
            none = checks.counted(change, 0, 0, after=node.cordoned, until=uncordon.ended)
            not_a_condition.expect_later(none)
        row = lab.run(actions.kubectl("get", "node", node))
        display.expect_value(row, {"stdout": {"$contains": "Ready,SchedulingDisabled"}})
        description = lab.run(actions.kubectl("describe", "node", node))
        display.expect_value(description, DESCRIBED)
        lab.run(uncordon)
        claim("cordon.taint").expect(taint.removed, within=5, after=node.uncordoned)
        blocks.expect(pod.bound, within=windows.BIND_S, after=node.uncordoned)
        row = lab.run(actions.kubectl("get", "node", node))
        display.expect_value(row, {"stdout": {"$not": {"$contains": "SchedulingDisabled"}}})
