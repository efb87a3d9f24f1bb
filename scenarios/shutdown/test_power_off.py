"""A power cut, which the kubelet does not notice as a shutdown."""

from nodeproof.scenario import Expectations, Lab, faults, moments, needs, windows
from nodeproof.scenario.marks import standing


@needs(nodes=2, faulted=1, features=("systemd", "power"))
@standing(faults.kubelet_settings, shutdownGracePeriod="60s", shutdownGracePeriodCriticalPods="20s")
def test_kubelet_does_not_detect_power_cut_as_shutdown(lab: Lab, claim: Expectations) -> None:
    node, configuration = lab.target, lab.configuration
    absence_window = windows.absence(configuration["G"] + 3 * configuration["P"] + lab.quiet_s)
    not_detected = claim("non-graceful.not-detected")
    notice = moments.event_reported("Shutdown", "Node", node, "")

    with lab.record():
        with lab.inject(faults.power_off(node)) as fault:
            lab.wait_until_lost(node, fault)
            heartbeat = node.last_heartbeat(before=node.unknown)
            not_detected.expect_later(node.unknown, within=windows.detection(), after=heartbeat)
            not_detected.never(node.not_ready, throughout=absence_window, after=fault.requested_at)
            not_detected.never(notice, throughout=absence_window, after=fault.requested_at)
        lab.wait_until_ready(node, fault)
