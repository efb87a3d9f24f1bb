"""Rates of eviction where few nodes are lost."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Log,
    Stage,
    claims,
    condition_became,
    needs,
    outage,
    taint_added,
    windows,
)

NEW_STATE = "Controller detected that zone is now in new state"
ONE_AFTER_THE_OTHER = "max(P, 1/E) + 1/E + 1"


@claims("rate-limits.minimum-three")
@needs(nodes=3, faulted=2, lasts="G + 1/E + 6")
def test_two_lost_nodes_of_three_are_no_disruption_of_their_zone(lab: Stage, judge: Judge) -> None:
    """Two thirds of the zone are lost: far more than the threshold of 55 percent."""
    one_after_the_other = windows.formula(
        "within", ONE_AFTER_THE_OTHER, "-slack", f"{ONE_AFTER_THE_OTHER} + slack"
    )
    (zone,) = {entry.zone for entry in lab.nodes()}
    state_changes = Log("kube-controller-manager", NEW_STATE, about=f':{zone}"')
    unknown = {node: condition_became(node, "Ready", "Unknown") for node in lab.targets}
    lost = [entry for entry in lab.nodes() if entry.name in lab.targets]
    lab.expect(len(lab.nodes()) == 3, "two of three nodes, in one zone", "run it with --nodes=3")

    with lab.record(), lab.inject(outage(*lost)) as cut:
        for node in lab.targets:
            lab.wait_for(unknown[node].after(cut.began, windows.detection_from_fault()))
        taints = {node: taint_added(node, UNREACHABLE, "NoExecute") for node in lab.targets}
        tainted = [
            lab.wait_for(taints[node].after(unknown[node], one_after_the_other)) for node in lab.targets
        ]
        same = [
            lab.wait_for(state_changes.line.never_after(moment, windows.absence(lab.quiet_s)))
            for moment in unknown.values()
        ]
        lab.hear(state_changes)

    for check in (*tainted, *same):
        judge("rate-limits.minimum-three", check)
