"""Rates of eviction where few nodes are lost."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Log,
    Stage,
    all_came,
    claims,
    condition_became,
    needs,
    no_execute_written,
    outage,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)

NEW_STATE = "Controller detected that zone is now in new state"
ONE_AFTER_THE_OTHER = "max(P, 1/E) + 1/E + 1"
APART = f"1.04R + 2P + {ONE_AFTER_THE_OTHER}"
"""At the most: their last heartbeats may be a renewal apart."""


@claims("rate-limits.minimum-three", "rate-limits.limits-taints-not-pods")
@needs(nodes=3, faulted=2, lasts="2G + 3/E + 20")
def test_two_lost_nodes_of_three_are_no_disruption_of_their_zone(lab: Stage, judge: Judge) -> None:
    """Two thirds of the zone are lost: far more than the threshold of 55 percent. Pods of one of the nodes
    leave it together, though the zone's rate would allow one in 1/E.
    """
    one_after_the_other = windows.formula(
        "within", ONE_AFTER_THE_OTHER, "-slack", f"{ONE_AFTER_THE_OTHER} + slack"
    )
    lab.expect(len(lab.nodes()) == 3, "two of three nodes, in one zone", "run it with --nodes=3")
    zone = lab.nodes()[0].zone
    state_changes = Log("kube-controller-manager", NEW_STATE, about=f':{zone}"')
    unknown = {node: condition_became(node, "Ready", "Unknown") for node in lab.targets}
    lost = [entry for entry in lab.nodes() if entry.name in lab.targets]

    pods = [lab.do(run_pod(on=lab.target, tolerates_unreachable_s=lab.toleration_s)) for _pod in range(3)]

    with lab.record(), lab.inject(outage(*lost)) as cut:
        for node in lab.targets:
            lab.wait_for(unknown[node].after(cut.began, windows.detection_from_fault()))
        taints = {node: taint_added(node, UNREACHABLE, "NoExecute") for node in lab.targets}
        tainted = [
            lab.wait_for(taints[node].after(unknown[node], one_after_the_other)) for node in lab.targets
        ]
        leave = [
            lab.wait_for(
                pod_deletion(pod.namespace, pod.name).after(
                    taints[lab.target], windows.toleration(lab.toleration_s)
                )
            )
            for pod in pods
        ]
        same = [
            lab.wait_for(state_changes.line.never_after(moment, windows.absence(lab.quiet_s)))
            for moment in unknown.values()
        ]
        lab.hear(state_changes)

    # The zone's bucket holds one token from the beginning.
    apart = windows.formula("within", APART, "1/E - slack", f"{APART} + slack")
    second = all_came(*taints.values()).after(no_execute_written(*lab.targets), apart)
    for check in (*tainted, *same, second):
        judge("rate-limits.minimum-three", check)
    for check in leave:
        judge("rate-limits.limits-taints-not-pods", check)
