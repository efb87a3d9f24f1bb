"""A machine that is shut down past logind, under a kubelet that was given time for shutdowns."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    Witness,
    claims,
    condition_became,
    event_reported,
    kubelet_settings,
    last_heartbeat,
    machine_ended,
    needs,
    pod_marked,
    run_witnesses,
    shutdown,
    standing,
    windows,
)

TOTAL_S, CRITICAL_S, PATIENT_S = 60, 20, 300
OFF_S = 15
"""Less than half of what a kubelet that knew of it would give a pod that is deaf to SIGTERM."""
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")


@claims("graceful-shutdown.undetected-paths")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="2G + 3P + 100")
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_a_forced_power_off_is_no_shutdown_to_the_kubelet(lab: Stage, judge: Judge) -> None:
    """Nobody waits for its lock, and the node is heard of no more."""
    node, known = lab.target, lab.configuration
    quiet = windows.absence(known["G"] + 3 * known["P"] + lab.quiet_s)
    unknown, not_ready = (condition_became(node, "Ready", status) for status in ("Unknown", "False"))
    noticed = event_reported("Shutdown", "Node", node, "")

    with lab.record():
        (pod,) = lab.do(run_witnesses(Witness(PATIENT_S, deaf=True, tolerates_s=PATIENT_S), on=node))
        marked = pod_marked(pod.namespace, pod.name, *MARK)
        with lab.inject(shutdown(node, "forced")) as off:
            ends = lab.wait_for(machine_ended(node).after(off.ordered, windows.prompt(OFF_S)))
            lab.wait_for(unknown.after(off.began, windows.detection_from_fault()))
            never = [
                lab.wait_for(moment.never_after(off.ordered, quiet))
                for moment in (not_ready, noticed, marked)
            ]
        lab.wait_for(condition_became(node, "Ready", "True").after(off.healing, windows.recovery()))

    lost = unknown.after(last_heartbeat(node, unknown), windows.detection())
    for check in (ends, lost, *never):
        judge("graceful-shutdown.undetected-paths", check)
