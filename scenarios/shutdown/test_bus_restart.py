"""A kubelet beside which D-Bus and logind are restarted."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Witness
from nodeproof.scenario.marks import standing
from nodeproof.scenario.sources import Log

TOTAL_S, CRITICAL_S = 30, 10
RECONNECTION_S, SOON_S, TOLERATION_S = 10, 15, 300
"""The kubelet retries every second (dbusReconnectPeriod); an emulated machine starts both in seconds."""
LOGIND, BUS = "systemd-logind.service", "dbus.service"
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
OVER = {"status": {"phase": {"$in": ["Failed", "Succeeded"]}}}
ENDS = "Ended to watching the node for shutdown events"


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="100")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_kubelet_watches_for_shutdowns_after_restarts_of_logind_and_dbus(
    lab: Lab, claim: Expectations
) -> None:
    """The kubelet's inhibitor lock outlives logind, and a later shutdown shows that it watches again.

    A logind that has lost its bus does not answer on the new one, so it is restarted, too.
    """
    node, restarted = lab.target, claim("graceful-shutdown.dbus-restart")
    end_of_watch = Log(f"kubelet-{node}", ENDS)
    bus_restart, logind_restart = (actions.restart_unit(node, unit) for unit in (BUS, LOGIND))
    notice = moments.event_reported("Shutdown", "Node", node, "Shutdown manager detected shutdown event")
    not_ready = moments.condition_reported(node, "Ready", "False", "KubeletNotReady", "node is shutting down")
    notice_window = windows.up_to(SOON_S)

    with lab.record():
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=TOLERATION_S), on=node))
        lab.run(bus_restart)
        lab.run(logind_restart)
        # The API does not show when the kubelet watches again.
        lab.wait_for(node.unknown.never_after(logind_restart.ended, RECONNECTION_S))
        restarted.expect_value(lab.observe(probes.inhibitors(node)), {"$contains": LOCK})
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            restarted.expect(notice, within=notice_window, after=fault.requested_at)
            restarted.expect(not_ready, within=notice_window, after=fault.requested_at)
            end = pod.became(OVER)
            lab.wait_for(end.after(fault.requested_at, 2 * SOON_S))
        lab.collect(pod, end_of_watch)

    restarted.expect_later(end_of_watch.line, within=RECONNECTION_S, after=bus_restart.begun)
    restarted.expect_later(pod.sigterm, within=notice_window, after=fault.requested_at)
