"""A kubelet that restarts while its machine prepares to shut down."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes
from nodeproof.scenario.kubernetes import Pod
from nodeproof.scenario.marks import standing
from nodeproof.scenario.types import Moment

TOTAL_S, CRITICAL_S, DELAY_S = 30, 10, 110
"""A lock of the harness delays the shutdown, as the kubelet's lock ends with the kubelet."""
SOON_S, UP_S, CONTAINER_START_S = 15, 45, 30
LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="110")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_kubelet_started_during_shutdown_does_not_detect_it(lab: Lab, claim: Expectations) -> None:
    """It refuses a pod before the restart and admits one afterwards, and its node is Ready."""
    node, during = lab.target, claim("graceful-shutdown.kubelet-restart-during")
    not_ready = moments.condition_reported(node, "Ready", "False", "KubeletNotReady", "node is shutting down")
    restart = moments.kubelet_restarted(node)
    ready = moments.first_after(node.ready, after=restart)

    with lab.record(), lab.inject(faults.cancelled_shutdown(node, delay_s=DELAY_S)) as fault:
        during.expect(not_ready, within=SOON_S, after=fault.requested_at)
        refused = lab.run(actions.bound_pod(to=node))
        failed = status(refused, phase="Failed", reason="NodeShutdown")
        during.expect(failed, within=SOON_S, after=refused.bound)
        lab.run(actions.restart_kubelet(node))
        during.expect(ready, within=UP_S, after=restart)
        admitted = lab.run(actions.bound_pod(to=node))
        running = status(admitted, phase="Running")
        during.expect(running, within=CONTAINER_START_S, after=admitted.bound)
        during.expect_value(lab.observe(probes.inhibitors(node)), {"$not": {"$contains": LOCK}})
        preparing = lab.observe(probes.dbus_property(node, *LOGIN, "PreparingForShutdown"))
        during.expect_value(preparing, True)


def status(pod: Pod, **fields: str) -> Moment:
    return pod.became({"status": fields})
