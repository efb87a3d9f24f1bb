"""A power cut, which the kubelet does not notice as a shutdown."""

from nodeproof.scenario import Expectations, Lab, faults, needs
from nodeproof.scenario.kubernetes import shutdown_periods
from nodeproof.scenario.marks import standing


@needs(nodes=2, faulted=1, features=("systemd", "power"))
@standing(faults.kubelet_settings, **shutdown_periods(60, 20))
def test_kubelet_does_not_detect_power_cut_as_shutdown(lab: Lab, claim: Expectations) -> None:
    node, not_detected = lab.target, claim("non-graceful.not-detected")
    silent_s = lab.configuration["G"] + 3 * lab.configuration["P"] + lab.quiet_s

    with lab.record():
        with lab.inject(faults.power_off(node)) as fault:
            lab.wait_until_lost(node, fault)
            not_detected.expect_later(node.detection)
            for moment in (node.not_ready, node.event("Shutdown")):
                not_detected.never(moment, throughout=silent_s, after=fault.requested_at)
        lab.wait_until_ready(node, fault)
