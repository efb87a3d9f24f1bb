"""Nodes that fall silent, each in its own way: the cluster can't tell them apart."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Fault,
    Stage,
    claims,
    condition_became,
    freeze,
    last_heartbeat,
    link_down,
    needs,
    taint_added,
    untainted,
    windows,
)

silence = claims("monitoring.detection-time", "taints.unreachable-noexecute", "taints.removed-on-recovery")


def is_noticed_until_it_is_over(lab: Stage, judge: Judge, fault: Fault) -> None:
    node = lab.target
    unknown = condition_became(node, "Ready", "Unknown")
    ready_again = condition_became(node, "Ready", "True")

    with lab.record():
        with lab.inject(fault) as silenced:
            lab.wait_for(unknown.after(silenced.began, windows.detection_from_fault()))
            tainted = lab.wait_for(
                taint_added(node, UNREACHABLE, "NoExecute").after(unknown, windows.taint_pass())
            )
        lab.wait_for(ready_again.after(silenced.healing, windows.recovery()))
        taints_go = [
            lab.wait_for(untainted(node, effect).after(ready_again, window))
            for effect, window in (("NoSchedule", windows.prompt(2)), ("NoExecute", windows.monitor_pass()))
        ]

    judge("monitoring.detection-time", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    judge("taints.unreachable-noexecute", tainted)
    for effect_is_gone in taints_go:
        judge("taints.removed-on-recovery", effect_is_gone)


@silence
@needs(nodes=2, faulted=1, features=("link",), lasts="G + 7")
def test_a_node_whose_cable_is_pulled(lab: Stage, judge: Judge) -> None:
    is_noticed_until_it_is_over(lab, judge, link_down(lab.target))


@silence
@needs(nodes=2, faulted=1, features=("freeze",), lasts="G + 7")
def test_a_node_that_stands_still(lab: Stage, judge: Judge) -> None:
    is_noticed_until_it_is_over(lab, judge, freeze(lab.target))
