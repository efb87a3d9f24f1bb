"""A kubelet beside which D-Bus and logind are restarted."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, probes
from nodeproof.scenario.kubernetes import Witness, shutdown_periods
from nodeproof.scenario.marks import standing
from nodeproof.scenario.sources import Log

RECONNECTION_S, SOON_S = 10, 15
"""The kubelet retries every second (dbusReconnectPeriod); an emulated machine starts both in seconds."""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="100")
@standing(faults.kubelet_settings, **shutdown_periods(30, 10))
def test_kubelet_watches_for_shutdowns_after_restarts_of_logind_and_dbus(
    lab: Lab, claim: Expectations
) -> None:
    """The kubelet's inhibitor lock outlives logind, and a later shutdown shows that it watches again.

    A logind that has lost its bus does not answer on the new one, so it is restarted, too.
    """
    node, restarted = lab.target, claim("graceful-shutdown.dbus-restart")
    end_of_watch = Log(f"kubelet-{node}", "Ended to watching the node for shutdown events")
    bus_restart = actions.restart_unit(node, "dbus.service")
    logind_restart = actions.restart_unit(node, "systemd-logind.service")

    with lab.record():
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=300), on=node))
        lab.run(bus_restart)
        lab.run(logind_restart)
        # The API does not show when the kubelet watches again.
        lab.wait_for(node.unknown.never_after(logind_restart.ended, RECONNECTION_S))
        restarted.expect_value(lab.observe(probes.inhibitors(node)), {"$contains": probes.KUBELET_LOCK})
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            for moment in (node.shutdown_detected, node.shutting_down):
                restarted.expect(moment, within=SOON_S, after=fault.requested_at)
            end = pod.became({"status": {"phase": {"$in": ["Failed", "Succeeded"]}}})
            lab.wait_for(end.after(fault.requested_at, 2 * SOON_S))
        lab.collect(pod, end_of_watch)

    restarted.expect_later(end_of_watch.line, within=RECONNECTION_S, after=bus_restart.begun)
    restarted.expect_later(pod.sigterm, within=SOON_S, after=fault.requested_at)
