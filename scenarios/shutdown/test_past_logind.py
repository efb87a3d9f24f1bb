"""A shutdown past logind, with grace periods for the kubelet."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs
from nodeproof.scenario.kubernetes import Witness, shutdown_periods
from nodeproof.scenario.marks import standing

POWER_OFF_S = 15
"""Less than half of what a kubelet that noticed would give a pod that ignores SIGTERM."""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="2G + 3P + 100")
@standing(faults.kubelet_settings, **shutdown_periods(60, 20))
def test_kubelet_does_not_detect_forced_power_off_as_shutdown(lab: Lab, claim: Expectations) -> None:
    """The shutdown does not wait for the kubelet's lock, and the node falls silent."""
    node, undetected = lab.target, claim("graceful-shutdown.undetected-paths")
    silent_s = lab.configuration["G"] + 3 * lab.configuration["P"] + lab.quiet_s
    notice = node.event("Shutdown")

    with lab.record():
        unresponsive = Witness(300, ignores_sigterm=True, toleration_s=300)
        (pod,) = lab.run(actions.run_witnesses(unresponsive, on=node))
        with lab.inject(faults.shutdown(node, "forced")) as fault:
            undetected.expect(moments.machine_ended(node), within=POWER_OFF_S, after=fault.requested_at)
            lab.wait_until_lost(node, fault)
            undetected.expect_later(node.detection)
            for moment in (node.not_ready, notice, pod.ended_by_shutdown):
                undetected.never(moment, throughout=silent_s, after=fault.requested_at)
        lab.wait_until_ready(node, fault)
