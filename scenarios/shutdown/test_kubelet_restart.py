"""A kubelet that restarts while its machine prepares to shut down."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes
from nodeproof.scenario.kubernetes import shutdown_periods
from nodeproof.scenario.marks import standing

SOON_S, UP_S, CONTAINER_START_S = 15, 45, 30
LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="110")
@standing(faults.kubelet_settings, **shutdown_periods(30, 10))
def test_kubelet_started_during_shutdown_does_not_detect_it(lab: Lab, claim: Expectations) -> None:
    """It refuses a pod before the restart and admits one afterwards, and its node is Ready.

    A lock of the harness delays the shutdown, as the kubelet's lock ends with the kubelet.
    """
    node, during = lab.target, claim("graceful-shutdown.kubelet-restart-during")
    restart = moments.kubelet_restarted(node)
    ready = moments.first_after(node.ready, after=restart)

    with lab.record(), lab.inject(faults.cancelled_shutdown(node, delay_s=110)) as fault:
        during.expect(node.shutting_down, within=SOON_S, after=fault.requested_at)
        refused = lab.run(actions.bound_pod(to=node))
        failed = refused.became({"status": {"phase": "Failed", "reason": "NodeShutdown"}})
        during.expect(failed, within=SOON_S, after=refused.bound)
        lab.run(actions.restart_kubelet(node))
        during.expect(ready, within=UP_S, after=restart)
        admitted = lab.run(actions.bound_pod(to=node))
        during.expect(admitted.running, within=CONTAINER_START_S, after=admitted.bound)
        not_locked = {"$not": {"$contains": probes.KUBELET_LOCK}}
        during.expect_value(lab.observe(probes.inhibitors(node)), not_locked)
        during.expect_value(lab.observe(probes.dbus_property(node, *LOGIN, "PreparingForShutdown")), True)
