"""Several machines under one Node's name, one after another and two at once."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    became,
    booted,
    changed,
    claims,
    condition_became,
    cordoned,
    counted,
    join,
    kubectl,
    label_node,
    labels_of,
    leave,
    made,
    needs,
    next_of,
    removed,
    taint_added,
    taint_removed,
    uncordoned,
    windows,
)

NODE, OLD, NEW, SECOND = "shared", "box-old", "box-new", "box-second"
KEY, TAINT, LEASES = "inherited", "nodeproof.dev/inherited", "kube-node-lease"
UP_S, FLIPS = 60.0, 2


@claims("naming.replacement-inherits-state", "naming.second-kubelet-adopts")
@needs(nodes=2, lasts="10U + 30")
def test_a_machine_that_comes_under_a_nodes_name_takes_the_node_as_it_is(lab: Stage, judge: Judge) -> None:
    """The first machine goes for good, another comes in its place, and then a third beside that."""
    machine_id = changed("nodes", NODE, "status.nodeInfo.machineID")
    labelled, unlabelled = (
        became("nodes", NODE, {"metadata": {"labels": pattern}})
        for pattern in (labels_of(KEY, "yes"), {"$not": labels_of(KEY, "yes")})
    )
    given = (labelled, cordoned(NODE), taint_added(NODE, TAINT, "NoSchedule"))
    lost = (unlabelled, uncordoned(NODE), taint_removed(NODE, TAINT, "NoSchedule"))
    gone = (removed("nodes", NODE), removed("leases", NODE, LEASES))
    quiet = windows.absence(lab.quiet_s)

    with lab.record():
        lab.do(join(OLD, node=NODE))
        ready = condition_became(NODE, "Ready", "True")
        lab.wait_for(ready.after(made("nodes", NODE), windows.prompt(UP_S)))
        lab.do(label_node(NODE, KEY, "yes"))
        lab.do(kubectl("cordon", NODE))
        lab.do(kubectl("taint", "node", NODE, f"{TAINT}=yes:NoSchedule"))
        has = [lab.wait_for(each.after(ready, windows.prompt(UP_S))) for each in given]
        parting = leave(OLD)
        lab.do(parting)
        lab.do(join(NEW, node=NODE))
        replaced = next_of(machine_id, after=booted(NEW))
        taken_over = lab.wait_for(replaced.after(booted(NEW), windows.prompt(UP_S)))
        kept = [lab.wait_for(each.never_after(replaced, quiet)) for each in lost]
        second = join(SECOND, node=NODE)
        # Its registration comes before its first status, however long after the other's end.
        kept += [counted(each, 0, 0, after=parting.begun, until=second.begun) for each in lost]
        lab.do(second)
        flips = next_of(machine_id, after=booted(SECOND))
        lab.wait_for(flips.after(booted(SECOND), windows.prompt(UP_S)))
        long = windows.absence(5 * lab.configuration["U"])
        one = [lab.wait_for(each.never_after(flips, long)) for each in gone]
        parted = leave(SECOND)
        # What it does when it starts comes before its first status, too.
        one += [counted(each, 0, 0, after=second.begun, until=parted.begun) for each in gone]
        lab.do(parted)

    for check in (*has, taken_over, *kept):
        judge("naming.replacement-inherits-state", check)
    often = counted(machine_id, FLIPS, 1000, after=booted(SECOND), until=parted.begun)
    for check in (often, *one):
        judge("naming.second-kubelet-adopts", check)
