"""Several machines with one Node name, one after another and two at once."""

import json

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes
from nodeproof.scenario.kubernetes import Node
from nodeproof.scenario.types import Moment

NODE, OLD, NEW, SECOND = Node("shared"), "box-old", "box-new", "box-second"
KEY, TAINT = "inherited", NODE.taint("nodeproof.dev/inherited", "NoSchedule")
UP_S, FLIPS = 60.0, 2
TYPE, NOTE = "node.kubernetes.io/instance-type", "nodeproof.dev/inherited"
MARKED = {"labels": {**actions.labels_of(KEY, "yes"), TYPE: "large"}, "annotations": {NOTE: "yes"}}
"""The instance type is a label that kubelets set from a flag, which these kubelets lack."""
NETWORK = {"type": "NetworkUnavailable", "status": "False", "reason": "Said"}
MACHINE_ID = moments.changed("nodes", NODE, "status.nodeInfo.machineID")


@needs(nodes=2, duration_s="10U + 30")
def test_machine_with_name_of_existing_node_adopts_that_node(lab: Lab, claim: Expectations) -> None:
    """The first machine leaves for good, a second one replaces it, and a third one joins beside that."""
    with_network = {"status": {"conditions": [NETWORK]}}
    marked, reported = NODE.became({"metadata": MARKED}), NODE.became(with_network)
    second_join = actions.join(SECOND, node=NODE)

    with lab.record():
        lab.run(actions.join(OLD, node=NODE))
        lab.wait_for(NODE.ready.after(NODE.created, UP_S))
        lab.run(actions.label_node(NODE, KEY, "yes"))
        lab.run(actions.kubectl("label", "node", NODE, f"{TYPE}=large"))
        lab.run(actions.kubectl("annotate", "node", NODE, f"{NOTE}=yes"))
        # Unlike the harness's own PATCH, it keeps the other conditions.
        patch = ("--subresource=status", "-p", json.dumps(with_network))
        lab.run(actions.kubectl("patch", "node", NODE, *patch))
        lab.run(actions.kubectl("cordon", NODE))
        lab.run(actions.kubectl("taint", "node", NODE, f"{TAINT.key}=yes:{TAINT.effect}"))
        for addition in (marked, NODE.cordoned, TAINT.added):
            claim("naming.replacement-inherits-state").expect(addition, within=UP_S, after=NODE.ready)
        lab.wait_for(reported.after(NODE.ready, UP_S))
        expect_inheritance(lab, claim, until=second_join.begun)
        conditions = lab.observe(probes.node_field(NODE, "status.conditions"))
        claim("conditions.network-unavailable").expect_value(conditions, [NETWORK])
        lab.run(second_join)
        expect_shared_node(lab, claim, since=second_join.begun)


def expect_inheritance(lab: Lab, claim: Expectations, until: Moment) -> None:
    """Expect that the Node keeps its marks, cordon and taint when another machine replaces its own."""
    unmarked = NODE.became({"metadata": {"$not": MARKED}})
    old_leave = actions.leave(OLD)
    lab.run(old_leave)
    lab.run(actions.join(NEW, node=NODE))
    replacement = moments.first_after(MACHINE_ID, after=moments.booted(NEW))
    claim("naming.replacement-inherits-state").expect(replacement, within=UP_S, after=moments.booted(NEW))
    for loss in (unmarked, NODE.uncordoned, TAINT.removed):
        claim("naming.replacement-inherits-state").never(
            loss, throughout=lab.quiet_s, after=moments.booted(NEW)
        )
        # The registration precedes the first status, however long after the other machine's end.
        claim("naming.replacement-inherits-state").expect_none(loss, after=old_leave.begun, until=until)


def expect_shared_node(lab: Lab, claim: Expectations, since: Moment) -> None:
    """Expect that two machines report for one Node in turn, and that neither removes it or its Lease."""
    flips = moments.first_after(MACHINE_ID, after=moments.booted(SECOND))
    lab.wait_for(flips.after(moments.booted(SECOND), UP_S))
    second_leave = actions.leave(SECOND)
    for removal in (NODE.removed, moments.removed("leases", NODE, "kube-node-lease")):
        claim("naming.second-kubelet-adopts").never(
            removal, throughout=5 * lab.configuration["U"], after=flips
        )
        # What the kubelet does at its start precedes its first status, too.
        claim("naming.second-kubelet-adopts").expect_none(removal, after=since, until=second_leave.begun)
    lab.run(second_leave)
    claim("naming.second-kubelet-adopts").expect_later(
        checks.counted(MACHINE_ID, FLIPS, 1000, after=moments.booted(SECOND), until=second_leave.begun)
    )
