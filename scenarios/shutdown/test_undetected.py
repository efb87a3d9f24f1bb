"""Shutdowns that the kubelet does not notice: it requested no delay, or more than logind grants."""

from collections.abc import Mapping
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes
from nodeproof.scenario.kubernetes import Node, Pod, Witness, shutdown_periods
from nodeproof.scenario.types import Expectation, Injection

LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
DELAY = (*LOGIN, "InhibitDelayMaxUSec")
LOCKED, NOT_LOCKED = {"$contains": probes.KUBELET_LOCK}, {"$not": {"$contains": probes.KUBELET_LOCK}}
QUIET_S = 20
"""Longer (s) than a kubelet takes to report a shutdown, and than the longest gap in a witness's messages."""
DROP_INS = "/etc/systemd/logind.conf.d"
DROP_IN, LATER_DROP_IN = f"{DROP_INS}/99-kubelet.conf", f"{DROP_INS}/nodeproof.conf"
"""The last drop-in that sets a value counts: the second one is the image's own, of 120 s."""
LOGIND_S, RAISED_S, CRITICAL_S, TOO_LONG_S = 120, 180, 60, 240


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="70")
def test_kubelet_without_grace_period_does_not_detect_shutdown(lab: Lab, claim: Expectations) -> None:
    """The kubelet holds no delay lock: logind continues at once, and the fault refuses the power-off."""
    node, off_by_default = lab.target, claim("graceful-shutdown.off-by-default")

    with lab.record():
        pod = start_witness(lab)
        for name in ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods"):
            off_by_default.expect_value(lab.observe(probes.kubelet_field(node, name)), "0s")
        off_by_default.expect_value(lab.observe(probes.inhibitors(node)), NOT_LOCKED)
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            expect_no_shutdown(off_by_default, node, fault, pod)
            preparing = lab.observe(probes.dbus_property(node, *LOGIN, "PreparingForShutdown"))
            off_by_default.expect_value(preparing, False)
        lab.collect(pod)


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="150")
def test_kubelet_raises_logind_delay_unless_later_drop_in_lowers_it(lab: Lab, claim: Expectations) -> None:
    """The later drop-in is empty at first. The kubelet's own stays after its grace period is removed."""
    node, override = lab.target, claim("graceful-shutdown.inhibit-delay-override")
    conflict = claim("graceful-shutdown.inhibit-delay-conflict")

    with lab.record():
        delay_us = lab.observe(probes.dbus_property(node, *DELAY)).value
        raised = f"logind already delays a shutdown by {RAISED_S} s or more"
        lab.require_lab(delay_us < RAISED_S * 10**6, otherwise=raised, next_step="restart logind")
        with (
            lab.inject(faults.replace_file(node, LATER_DROP_IN, "[Login]\n")),
            lab.inject(faults.kubelet_settings(node, **shutdown_periods(RAISED_S, CRITICAL_S))),
        ):
            start_witness(lab)
            expect_delay(lab, override, delay_s=RAISED_S, period_s=RAISED_S, locks=LOCKED)
        with lab.inject(faults.kubelet_settings(node, shutdownGracePeriod=f"{TOO_LONG_S}s")):
            pod = start_witness(lab)
            expect_delay(lab, conflict, delay_s=LOGIND_S, period_s=TOO_LONG_S, locks=NOT_LOCKED)
            with lab.inject(faults.cancelled_shutdown(node)) as fault:
                expect_no_shutdown(conflict, node, fault, pod)
            lab.collect(pod)


def start_witness(lab: Lab) -> Pod:
    """Start a pod on the target; by then, its kubelet has its lock or has failed to get one."""
    (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=300), on=lab.target))
    return pod


def expect_delay(
    lab: Lab, expectation: Expectation, *, delay_s: int, period_s: int, locks: Mapping[str, Any]
) -> None:
    """Expect logind's delay, the grace period in the kubelet's drop-in, and the kubelet's lock or none."""
    node, drop_in = lab.target, {"$contains": f"InhibitDelayMaxSec={period_s}"}
    expectation.expect_value(lab.observe(probes.dbus_property(node, *DELAY)), delay_s * 10**6)
    expectation.expect_value(lab.observe(probes.file_of(node, DROP_IN)), drop_in)
    expectation.expect_value(lab.observe(probes.inhibitors(node)), locks)


def expect_no_shutdown(expectation: Expectation, node: Node, fault: Injection, pod: Pod) -> None:
    """Expect that the kubelet notices no shutdown, and that the pod, collected later, continues to run."""
    for moment in (node.shutdown_detected, node.not_ready):
        expectation.never(moment, throughout=QUIET_S, after=fault.requested_at)
    expectation.expect_none(pod.sigterm, after=fault.requested_at, until=fault.healing_at)
    expectation.expect_later(checks.stays_alive(pod.name, fault.requested_at, fault.healing_at))
