"""A Node whose machine was reset, and is known by another boot."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    boot_id_changed,
    claims,
    condition_became,
    event_reported,
    last_heartbeat,
    needs,
    reset,
    windows,
)


@claims("naming.reboot-event", "monitoring.detection-time")
@needs(nodes=2, faulted=1, features=("reset",), lasts="G + 4R")
def test_a_machine_that_was_reset_is_reported_as_rebooted(lab: Stage, judge: Judge) -> None:
    node = lab.target
    unknown, booted = condition_became(node, "Ready", "Unknown"), boot_id_changed(node)
    rebooted = event_reported("Rebooted", "Node", node, f"Node {node} has been rebooted")

    with lab.record():
        with lab.inject(reset(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
        back = lab.wait_for(booted.after(cut.healing, windows.recovery()))
        told = lab.wait_for(rebooted.after(cut.healing, windows.recovery()))

    judge("monitoring.detection-time", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    judge("naming.reboot-event", back)
    judge("naming.reboot-event", told)
