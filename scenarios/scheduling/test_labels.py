"""Scheduling of pods by node labels."""

from collections.abc import Mapping

from nodeproof.scenario import Expectations, Lab, actions, needs, windows
from nodeproof.scenario.kubernetes import PRESENT, Node, workload
from nodeproof.scenario.types import Moment

PLACED, RUNS = windows.up_to(15), windows.up_to(60)
COLOUR = "colour"


@needs(nodes=2, duration_s="4R + 20")
def test_label_change_affects_only_pods_scheduled_later(lab: Lab, claim: Expectations) -> None:
    first, second = lab.target, lab.others[0]
    red, green = actions.labels_of(COLOUR, "red"), actions.labels_of(COLOUR, "green")
    reds, more_reds, greens = (workload("ReplicaSet", nodeSelector=label) for label in (red, red, green))
    on_first = reds.pod_written(spec={"nodeName": first})
    elsewhere = reds.pod_written(spec={"nodeName": {"$not": {"$in": [None, first]}}})
    on_second = more_reds.pod_written(spec={"nodeName": second})
    anywhere = greens.pod_written(spec={"nodeName": PRESENT})
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    unschedulable = greens.pod_written(status={"conditions": conditions})
    running = reds.pod_written(status={"phase": "Running"})
    failed = reds.pod_written(status={"phase": "Failed"})
    deletion, quiet_s = reds.deletion, lab.quiet_s
    selector, new_pods = claim("manual-node.node-selector"), claim("registration.label-change-new-pods")

    with lab.record():
        label_nodes(lab, {first: "red", second: "blue"})
        lab.run(reds.make)
        lab.run(greens.make)
        selector.expect(on_first, within=PLACED, after=reds.make.begun)
        selector.expect(unschedulable, within=PLACED, after=greens.make.begun)
        lab.wait_for(running.after(on_first, RUNS))
        # Labels and pods come from separate watches. An absence is certain to cover the label change only if
        # it starts well before it.
        lab.wait_for(deletion.never_after(running, lab.clear_s))
        label_nodes(lab, {first: "blue", second: "red"})
        change = label_change(first, "blue")
        for moment in (change, label_change(second, "red")):
            lab.wait_for(moment.after(reds.make.ended, RUNS))
        lab.run(more_reds.make)
        new_pods.expect(on_second, within=PLACED, after=more_reds.make.begun)
        for since, absence_s in ((change, quiet_s), (running, lab.clear_s + quiet_s)):
            for end in (deletion, failed):
                new_pods.never(end, throughout=absence_s, after=since)
        selector.never(anywhere, throughout=quiet_s, after=greens.make.begun)
        for since in (reds.make.begun, change):
            selector.never(elsewhere, throughout=quiet_s, after=since)
        # The pod has waited since no node had its label.
        label_nodes(lab, {first: "green"})
        on_green = greens.pod_written(spec={"nodeName": first})
        selector.expect(on_green, within=PLACED, after=label_change(first, "green"))


def label_nodes(lab: Lab, colours: Mapping[str, str]) -> None:
    for node, colour in colours.items():
        lab.run(actions.label_node(node, COLOUR, colour))


def label_change(node: Node, colour: str) -> Moment:
    return node.became({"metadata": {"labels": actions.labels_of(COLOUR, colour)}})
