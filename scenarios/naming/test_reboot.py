"""A Node whose machine was reset, and which reports another boot."""

from nodeproof.scenario import Expectations, Lab, faults, moments, needs, windows


@needs(nodes=2, faulted=1, features=("reset",), duration_s="G + 4R")
def test_reset_machine_is_reported_as_rebooted(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    about, message = {"kind": "Node", "name": node}, {"$prefix": f"Node {node} has been rebooted"}
    event = {"type": "Warning", "reason": "Rebooted", "involvedObject": about, "message": message}
    rebooted = moments.written("events", event)

    with lab.record():
        with lab.inject(faults.reset(node)) as fault:
            lab.wait_until_lost(node, fault)
        for moment in (moments.boot_id_changed(node), rebooted):
            claim("naming.reboot-event").expect(moment, within=windows.recovery(), after=fault.healing_at)
        claim("monitoring.detection-time").expect_later(node.detection)
