"""A node that goes down without its kubelet being told."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    claims,
    condition_became,
    event_reported,
    kubelet_settings,
    last_heartbeat,
    needs,
    power_off,
    standing,
    windows,
)


@claims("non-graceful.not-detected")
@needs(nodes=2, faulted=1, features=("systemd", "power"))
@standing(kubelet_settings, shutdownGracePeriod="60s", shutdownGracePeriodCriticalPods="20s")
def test_a_cut_of_the_power_is_no_shutdown_to_the_kubelet(lab: Stage, judge: Judge) -> None:
    node, known = lab.target, lab.configuration
    quiet_s = known["G"] + 3 * known["P"] + lab.quiet_s
    unknown, not_ready = condition_became(node, "Ready", "Unknown"), condition_became(node, "Ready", "False")
    noticed = event_reported("Shutdown", "Node", node, "")

    with lab.record():
        with lab.inject(power_off(node)) as off:
            lab.wait_for(unknown.after(off.began, windows.detection_from_fault()))
            never = [
                lab.wait_for(moment.never_after(off.ordered, windows.absence(quiet_s)))
                for moment in (not_ready, noticed)
            ]
        lab.wait_for(condition_became(node, "Ready", "True").after(off.healing, windows.recovery()))

    judge("non-graceful.not-detected", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    for unseen in never:
        judge("non-graceful.not-detected", unseen)
