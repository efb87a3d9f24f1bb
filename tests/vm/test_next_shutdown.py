"""A finding: the kubelet does not hold up the shutdown after one that was called off (docs/findings.md)."""

from __future__ import annotations

import time

from nodeproof.cluster.witness import Witness
from nodeproof.cluster.workloads import Pod
from nodeproof.faults import CalledOff
from nodeproof.faults.shutdown import PREPARING
from nodeproof.labs.client.lab import Lab
from tests.vm.test_claims_on_machines import BASE, changed, sh
from tests.waiting import eventually

REGULAR_S, CRITICAL_S, PATIENT_S = 20, 5, 300
AT_ONCE_S, OVER_S = 12.0, 90.0
PERIODS = (
    f'"shutdownGracePeriod": "{REGULAR_S + CRITICAL_S}s", "shutdownGracePeriodCriticalPods": "{CRITICAL_S}s"'
)
LISTED = "systemd-inhibit --list --no-legend | grep -c kubelet || :"
OPEN = "ls -l /proc/$(systemctl show --value --property=MainPID kubelet)/fd | grep -c systemd/inhibit || :"
ALIVE = "pgrep -f nodeproof/witness/ | wc -l"


def locks(lab: Lab) -> tuple[int, int]:
    """How many locks logind says that the kubelet has, and how many it has open itself."""
    return int(sh(lab, LISTED)), int(sh(lab, OPEN))


def prepares(lab: Lab) -> bool:
    return "true" in sh(lab, " ".join(PREPARING))


def took_s(lab: Lab, fault: CalledOff) -> float:
    """How long a shutdown is held up from its request to its end, which is refused."""
    sh(lab, "systemctl unmask --runtime poweroff.target")
    began = time.monotonic()
    fault.inject(lab.fleet.machine(fault.node))
    assert eventually(lambda: not prepares(lab), OVER_S)
    return time.monotonic() - began


def run_deaf(lab: Lab) -> Pod:
    deaf = Witness(PATIENT_S, deaf=True, tolerates_s=PATIENT_S, host_network=True)
    (pod,) = lab.cluster.run_witnesses(lab.fleet.node_names()[0], [deaf])
    return pod


def test_a_kubelet_has_no_lock_after_a_shutdown_that_was_called_off(lab: Lab) -> None:
    fault = CalledOff("00000001", lab.fleet.node_names()[0])
    with changed(lab, BASE, f"s/}}$/, {PERIODS}}}/"):
        try:
            run_deaf(lab)
            assert locks(lab) == (1, 1)

            assert took_s(lab, fault) > REGULAR_S
            lab.wait_nodes_ready()
            assert locks(lab) == (0, 0)

            run_deaf(lab)
            assert took_s(lab, fault) < AT_ONCE_S
            assert int(sh(lab, ALIVE)) > 0
        finally:
            fault.heal(lab.fleet.machine(fault.node))
