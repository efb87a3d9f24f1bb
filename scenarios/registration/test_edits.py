"""What somebody edits of a Node stays, whatever its kubelet registers."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    became,
    claims,
    cordoned,
    counted,
    default_of,
    field_of,
    kubectl,
    kubelet_settings,
    label_node,
    labels_of,
    made,
    needs,
    next_of,
    node_deleted,
    removed,
    shows,
    taint_added,
    uncordoned,
    windows,
)

KEY, VALUE = "edited", "yes"
LATE = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
CORES, PODS = "status.capacity.cpu", "status.capacity.pods"
UP_S = 60.0


@claims("capacity.max-pods")
@needs(nodes=2)
def test_a_kubelet_takes_110_pods_unless_it_was_told_otherwise(lab: Stage, judge: Judge) -> None:
    with lab.record():
        room = lab.look(field_of(f"/api/v1/nodes/{lab.target}", PODS))
        judge("capacity.max-pods", shows(room, "110"))
        judge("capacity.max-pods", default_of("maxPods"))


@claims(
    "registration.with-taints-not-reconciled",
    "registration.with-taints-noop-without-register",
    "capacity.max-pods",
)
@needs(nodes=2, faulted=1, lasts="16R + 7")
def test_a_kubelet_that_starts_anew_leaves_taints_as_they_are_and_tells_how_many_pods_it_takes(
    lab: Stage, judge: Judge
) -> None:
    """Two starts: with taints for a Node that is there, and with taints for one that it may not make."""
    node, quiet = lab.target, windows.absence(lab.quiet_s)
    # Longer than a kubelet's longest wait for another registration, once it has found out.
    long_s = lab.configuration["U"] + 10.0
    path = f"/api/v1/nodes/{node}"
    tainted = taint_added(node, LATE["key"], LATE["effect"])

    with lab.record():
        cores = lab.look(field_of(path, CORES))
        by_core, at_most = (
            became("nodes", node, {"status": {"capacity": {"pods": str(pods)}}})
            for pods in (cores.value, int(cores.value) + 1)
        )
        few = {"podsPerCore": 1, "maxPods": int(cores.value) + 2}
        with lab.inject(kubelet_settings(node, registerWithTaints=[LATE], **few)) as registers:
            told = [lab.wait_for(by_core.after(registers.ordered, windows.prompt(UP_S)))]
            reconciled = lab.wait_for(tainted.never_after(registers.ordered, quiet))
        more = {"podsPerCore": 2, "maxPods": int(cores.value) + 1}
        silent = kubelet_settings(node, registerNode=False, registerWithTaints=[LATE], **more)
        with lab.inject(silent) as unregistered:
            told.append(lab.wait_for(at_most.after(unregistered.ordered, windows.prompt(UP_S))))
            with lab.inject(node_deleted(node, lab.labels(node))) as deletion:
                gone = removed("nodes", node)
                back = next_of(made("nodes", node), after=gone)
                lab.wait_for(back.never_after(gone, windows.absence(long_s + lab.clear_s)))
            noop = lab.wait_for(tainted.never_after(back, quiet))

    judge("registration.with-taints-not-reconciled", reconciled)
    for check in (back.never_after(gone, windows.absence(long_s)), deletion.lasted, noop):
        judge("registration.with-taints-noop-without-register", check)
    for check in told:
        judge("capacity.max-pods", check)


@claims("manual-node.edits-survive")
@needs(nodes=2, faulted=1, lasts="14R")
def test_edits_of_labels_and_schedulability_stay(lab: Stage, judge: Judge) -> None:
    """A kubelet starts anew that registers no node, and then one that does: it reconciles what it finds."""
    node = lab.target
    unlabelled = became("nodes", node, {"metadata": {"labels": {"$not": labels_of(KEY, VALUE)}}})
    quiet = windows.absence(lab.quiet_s)

    with lab.record():
        lab.do(label_node(node, KEY, VALUE))
        lab.do(kubectl("cordon", node))
        with lab.inject(kubelet_settings(node, registerNode=False)) as unregistered:
            for lost in (unlabelled, uncordoned(node)):
                lab.wait_for(lost.never_after(unregistered.began, quiet))
        for lost in (unlabelled, uncordoned(node)):
            lab.wait_for(lost.never_after(unregistered.healed, quiet))

    for lost in (unlabelled, uncordoned(node)):
        throughout = counted(lost, 0, 0, after=cordoned(node), until=unregistered.healed)
        for check in (throughout, lost.never_after(unregistered.healed, quiet)):
            judge("manual-node.edits-survive", check)
