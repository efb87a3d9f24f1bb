"""Where pods go by labels of nodes."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    Stage,
    became,
    claims,
    label_node,
    labels_of,
    needs,
    windows,
    workload,
    written,
)

PLACED_S, RUNS_S = 15, 60
COLOUR = "colour"


@claims("manual-node.node-selector", "registration.label-change-new-pods")
@needs(nodes=2, lasts="4R + 20")
def test_pods_go_where_the_labels_of_the_moment_send_them(lab: Stage, judge: Judge) -> None:
    first, second = lab.target, lab.others[0]
    red, blue, green = (labels_of(COLOUR, colour) for colour in ("red", "blue", "green"))
    reds, more_reds, greens = (workload("ReplicaSet", nodeSelector=each) for each in (red, red, green))
    on_first = written("pods", {**reds.pods, "spec": {"nodeName": first}})
    runs = written("pods", {**reds.pods, "status": {"phase": "Running"}})
    elsewhere = written("pods", {**reds.pods, "spec": {"nodeName": {"$not": {"$in": [None, first]}}}})
    on_second = written("pods", {**more_reds.pods, "spec": {"nodeName": second}})
    at_all = written("pods", {**greens.pods, "spec": {"nodeName": PRESENT}})
    refused = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    tried = written("pods", {**greens.pods, "status": {"conditions": refused}})
    leaves = written("pods", {"metadata": {**reds.pods["metadata"], "deletionTimestamp": PRESENT}})
    fails = written("pods", {**reds.pods, "status": {"phase": "Failed"}})
    prompt, quiet = windows.prompt(PLACED_S), windows.absence(lab.quiet_s)

    with lab.record():
        for node, colour in ((first, "red"), (second, "blue")):
            lab.do(label_node(node, COLOUR, colour))
        lab.do(reds.make)
        lab.do(greens.make)
        placed = lab.wait_for(on_first.after(reds.make.begun, prompt))
        waits = lab.wait_for(tried.after(greens.make.begun, prompt))
        lab.wait_for(runs.after(on_first, windows.prompt(RUNS_S)))
        # The labels are read from another watch than the pods: only what is looked for from well before they
        # change is sure to come after that.
        lab.wait_for(leaves.never_after(runs, windows.absence(lab.clear_s)))
        for node, colour in ((first, "blue"), (second, "red")):
            lab.do(label_node(node, COLOUR, colour))
        changed = [
            became("nodes", node, {"metadata": {"labels": each}})
            for node, each in ((first, blue), (second, red))
        ]
        for seen in changed:
            lab.wait_for(seen.after(reds.make.ended, windows.prompt(RUNS_S)))
        lab.do(more_reds.make)
        follows = lab.wait_for(on_second.after(more_reds.make.begun, prompt))
        stays = [
            lab.wait_for(end.never_after(since, lasting))
            for since, lasting in ((changed[0], quiet), (runs, windows.absence(lab.clear_s + lab.quiet_s)))
            for end in (leaves, fails)
        ]
        nowhere = [
            lab.wait_for(moment.never_after(since, quiet))
            for moment, since in (
                (at_all, greens.make.begun),
                (elsewhere, reds.make.begun),
                (elsewhere, changed[0]),
            )
        ]

    for check in (placed, waits, *nowhere):
        judge("manual-node.node-selector", check)
    for check in (follows, *stays):
        judge("registration.label-change-new-pods", check)
