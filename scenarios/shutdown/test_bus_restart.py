"""A kubelet beside which D-Bus, and then logind, are restarted."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Log,
    Stage,
    Witness,
    became,
    called_off_shutdown,
    claims,
    condition_became,
    condition_said,
    event_reported,
    inhibitors,
    kubelet_settings,
    needs,
    restart_unit,
    run_witnesses,
    shows,
    sigterm,
    standing,
    windows,
)

TOTAL_S, CRITICAL_S = 30, 10
BACK_S, SOON_S, PATIENT_S = 10, 15, 300
"""The kubelet tries once a second (dbusReconnectPeriod); an emulated machine starts both in seconds."""
LOGIND, BUS = "systemd-logind.service", "dbus.service"
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
OVER = {"status": {"phase": {"$in": ["Failed", "Succeeded"]}}}
ENDS = "Ended to watching the node for shutdown events"


@claims("graceful-shutdown.dbus-restart")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="100")
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_a_kubelet_watches_for_shutdowns_again_when_logind_and_the_bus_were_restarted(
    lab: Stage, judge: Judge
) -> None:
    """Its lock outlives logind; that its watch ended with the bus, and began anew, is seen by a shutdown.

    A logind that has lost its bus answers nobody on the new one: it is restarted as well.
    """
    node = lab.target
    lost = condition_became(node, "Ready", "Unknown")
    ended = Log(f"kubelet-{node}", ENDS)
    restarts = [restart_unit(node, unit) for unit in (BUS, LOGIND)]
    noticed = event_reported("Shutdown", "Node", node, "Shutdown manager detected shutdown event")
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", "node is shutting down")

    with lab.record():
        (pod,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
        for restart in restarts:
            lab.do(restart)
        # Nothing in the API tells when the kubelet watches again.
        lab.wait_for(lost.never_after(restarts[-1].ended, windows.absence(BACK_S)))
        lock = lab.look(inhibitors(node))
        with lab.inject(called_off_shutdown(node)) as down:
            seen = [
                lab.wait_for(moment.after(down.ordered, windows.prompt(SOON_S)))
                for moment in (noticed, not_ready)
            ]
            ends = became("pods", pod.name, OVER, pod.namespace)
            lab.wait_for(ends.after(down.ordered, windows.prompt(2 * SOON_S)))
        lab.hear(pod, ended)

    told = sigterm(pod.name).after(down.ordered, windows.prompt(SOON_S))
    watch_ends = ended.line.after(restarts[0].begun, windows.prompt(BACK_S))
    for check in (shows(lock, {"$contains": LOCK}), watch_ends, *seen, told):
        judge("graceful-shutdown.dbus-restart", check)
