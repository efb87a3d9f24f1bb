"""A shutdown past logind, with grace periods for the kubelet."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import Witness
from nodeproof.scenario.marks import standing

TOTAL_S, CRITICAL_S, GRACE_S, TOLERATION_S = 60, 20, 300, 300
POWER_OFF_S = 15
"""Less than half of what a kubelet that noticed would give a pod that ignores SIGTERM."""
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="2G + 3P + 100")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_kubelet_does_not_detect_forced_power_off_as_shutdown(lab: Lab, claim: Expectations) -> None:
    """The shutdown does not wait for the kubelet's lock, and the node falls silent."""
    node, configuration = lab.target, lab.configuration
    absence_window = windows.absence(configuration["G"] + 3 * configuration["P"] + lab.quiet_s)
    undetected = claim("graceful-shutdown.undetected-paths")
    notice = moments.event_reported("Shutdown", "Node", node, "")

    with lab.record():
        unresponsive = Witness(GRACE_S, ignores_sigterm=True, toleration_s=TOLERATION_S)
        (pod,) = lab.run(actions.run_witnesses(unresponsive, on=node))
        pod_failure = moments.pod_failed(pod.namespace, pod.name, *MARK)
        with lab.inject(faults.shutdown(node, "forced")) as fault:
            undetected.expect(moments.machine_ended(node), within=POWER_OFF_S, after=fault.requested_at)
            lab.wait_until_lost(node, fault)
            heartbeat = node.last_heartbeat(before=node.unknown)
            undetected.expect_later(node.unknown, within=windows.detection(), after=heartbeat)
            for moment in (node.not_ready, notice, pod_failure):
                undetected.never(moment, throughout=absence_window, after=fault.requested_at)
        lab.wait_until_ready(node, fault)
