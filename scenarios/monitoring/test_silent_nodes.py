"""Nodes that fall silent in different ways, which the control plane cannot distinguish."""

from nodeproof.scenario import Expectations, Lab, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE
from nodeproof.scenario.types import Fault


def expect_detection_and_recovery(lab: Lab, claim: Expectations, fault: Fault) -> None:
    node, tainted = lab.target, claim("taints.unreachable-noexecute")
    untainted, unreachable = claim("taints.removed-on-recovery"), node.taint(UNREACHABLE).added

    with lab.record():
        with lab.inject(fault) as silence:
            lab.wait_until_lost(node, silence)
            claim("monitoring.detection-time").expect_later(node.detection)
            tainted.expect(unreachable, within=windows.taint_pass(), after=node.unknown)
        lab.wait_until_ready(node, silence)
        no_schedule, no_execute = moments.untainted(node, "NoSchedule"), moments.untainted(node, "NoExecute")
        untainted.expect(no_schedule, within=2, after=node.ready)
        untainted.expect(no_execute, within=windows.monitor_pass(), after=node.ready)


@needs(nodes=2, faulted=1, features=("link",), duration_s="G + 7")
def test_node_with_unplugged_cable_becomes_unknown_and_recovers(lab: Lab, claim: Expectations) -> None:
    expect_detection_and_recovery(lab, claim, faults.link_down(lab.target))


@needs(nodes=2, faulted=1, features=("freeze",), duration_s="G + 7")
def test_frozen_node_becomes_unknown_and_recovers(lab: Lab, claim: Expectations) -> None:
    expect_detection_and_recovery(lab, claim, faults.freeze(lab.target))
