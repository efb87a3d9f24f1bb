"""Nodes that are deleted and registered again, and the pods on them."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Moment,
    Pod,
    Stage,
    became,
    claims,
    condition_became,
    kubectl,
    made,
    needs,
    next_of,
    pod_deletion,
    pod_gone,
    removed,
    run_pod,
    unit_down,
    wait_out_orphans_quarantine,
    windows,
)

UP_S = 30.0
COLLECTED_S = 85.0
"""Longer than the longest that an orphan is left alone."""


def fails(pod: Pod) -> Moment:
    return became("pods", pod.name, {"status": {"phase": "Failed"}}, pod.namespace)


@claims("registration.reregistration-drains")
@needs(nodes=3, faulted=2, lasts="120")
def test_a_node_that_is_registered_again_keeps_its_pods_unless_it_was_away_for_long(
    lab: Stage, judge: Judge
) -> None:
    """Two kubelets make their Nodes again when they start: one at once, one when its pods are gone."""
    node, brief = lab.targets
    lab.do(wait_out_orphans_quarantine(node, brief))
    leaves, stays = lab.do(run_pod(on=node)), lab.do(run_pod(on=brief))
    away, away_briefly = removed("nodes", node), removed("nodes", brief)
    back, back_soon = (
        next_of(made("nodes", name), after=gone) for name, gone in ((node, away), (brief, away_briefly))
    )
    longer = windows.absence(COLLECTED_S)

    with lab.record():
        with lab.inject(unit_down(brief)) as short:
            lab.do(kubectl("delete", "node", brief))
        checks = [lab.wait_for(back_soon.after(short.healing, windows.prompt(UP_S)))]
        with lab.inject(unit_down(node)) as long:
            lab.do(kubectl("delete", "node", node))
            collected = pod_gone(leaves.namespace, leaves.name).after(away, windows.quarantine())
            checks.append(lab.wait_for(collected))
        checks.append(lab.wait_for(back.after(long.healing, windows.prompt(UP_S))))
        for moment in (pod_deletion(stays.namespace, stays.name), fails(stays)):
            checks.append(lab.wait_for(moment.never_after(away_briefly, longer)))
        for name, cut in ((brief, short), (node, long)):
            ready = condition_became(name, "Ready", "True")
            lab.wait_for(ready.after(cut.healing, windows.recovery()))

    for check in checks:
        judge("registration.reregistration-drains", check)
