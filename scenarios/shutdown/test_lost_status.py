"""A shutdown during which the kubelet cannot report the end of its pods."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs
from nodeproof.scenario.kubernetes import Witness, shutdown_periods
from nodeproof.scenario.marks import standing

TOTAL_S, CRITICAL_S = 60, 20
POWER_OFF_S = 35
"""Longest time from the last pod's end until the machine is off: less than the two periods would leave."""
REFUSES = "nodeproof refuses it"


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="180")
@standing(faults.kubelet_settings, **shutdown_periods(TOTAL_S, CRITICAL_S))
def test_shutdown_waits_for_pods_to_end_not_for_their_status_updates(lab: Lab, claim: Expectations) -> None:
    """The kubelet may report everything else; in the API, its pods still run."""
    node, kubelet = lab.target, actions.kubelet_of(lab.target)
    refusal, end = actions.refuse("UPDATE", kubelet, "pods/status"), moments.machine_ended(node)
    lost = claim("graceful-shutdown.status-may-be-lost")

    with lab.record():
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=300), on=node))
        path, patch = f"{pod.path}/status", {"status": {"message": "nodeproof"}}
        lost.expect_value(lab.run(actions.dry_run("PATCH", path, patch, by=kubelet)), {"status": 200})
        lab.run(refusal)
        # A new policy takes effect once the API server has compiled it: after about a second.
        lab.wait_for(node.unknown.never_after(refusal.ended, 8))
        refused = lab.run(actions.dry_run("PATCH", path, patch, by=kubelet))
        no_effect, next_step = "the admission policy has no effect", "see the API server's log"
        lab.require_lab(REFUSES in str(refused.value["body"]), otherwise=no_effect, next_step=next_step)
        lost.expect_value(refused, {"body": {"message": {"$contains": REFUSES}}})
        with lab.inject(faults.shutdown(node)) as fault:
            lab.wait_for(end.after(fault.requested_at, TOTAL_S + POWER_OFF_S))
        lab.collect(pod)
        lab.wait_until_ready(node, fault)

    lost.expect_later(pod.sigterm, within=15, after=fault.requested_at)
    lost.expect_later(end, within=POWER_OFF_S, after=pod.last_sign)
    identity, over = {"namespace": pod.namespace, "name": pod.name}, {"$in": ["Failed", "Succeeded"]}
    finished = moments.written("pods", {"metadata": identity, "status": {"phase": over}})
    lost.expect_none(finished, after=fault.requested_at, until=end)
