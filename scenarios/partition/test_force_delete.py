"""Pods of an unreachable node that a user deletes by force, and their containers."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs
from nodeproof.scenario.kubernetes import UNREACHABLE, Pod, Witness, preferring, tolerates, workload
from nodeproof.scenario.types import Observation

CONTAINER_START_S = 60.0
TERMINATION_S = 45 + 15.0
"""Until a kubelet drops a dead connection, 30 s and 15 s of HTTP/2 by default, and ends the pod."""
LIVES_S = 15.0
"""Longer than the longest gap between messages of a running witness (SILENCE_TIMEOUT_S in
nodeproof.checks.observations).
"""


@needs(nodes=2, faulted=1, features=("real-pods",), duration_s="G + 3P + 100")
def test_force_deleted_pod_frees_its_name_while_its_container_runs(lab: Lab, claim: Expectations) -> None:
    """A StatefulSet recreates its pod at once; a witness shows how long the first container lives."""
    node, force_delete = lab.target, claim("partition.user-force-delete")
    stateful = workload("StatefulSet", **preferring(node), tolerations=[tolerates(UNREACHABLE)])
    ordinal = Pod(stateful.namespace, f"{stateful.name}-0", node)

    with lab.record():
        # It tolerates more than the scenario takes: only the user deletes it.
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=300), on=node))
        lab.start(stateful, on=node, within_s=CONTAINER_START_S)
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            delete_pod, delete_ordinal = deletion_by_force(pod), deletion_by_force(ordinal)
            lab.run(delete_pod)
            lab.run(delete_ordinal)
            force_delete.expect_value(lab.run(actions.send_request("GET", pod.path)), {"status": 404})
            force_delete.expect(pod.removal, within=3.0, after=delete_pod.begun)
            force_delete.expect(ordinal.replacement, within=10.0, after=delete_ordinal.begun)
            elsewhere = stateful.running_on({"$not": {"$in": [None, node]}})
            force_delete.expect(elsewhere, within=CONTAINER_START_S, after=ordinal.replacement)
            lab.wait_for(pod.replacement.never_after(pod.removal, LIVES_S))
        lab.wait_until_ready(node, fault)
        # The API does not show when the kubelet has ended the deleted pod.
        lab.wait_for(pod.replacement.never_after(fault.healing_at, TERMINATION_S + lab.clear_s))
        lab.collect(pod)

    force_delete.expect_later(checks.stays_alive(pod.name, pod.removal, fault.healing_at))
    force_delete.expect_later(pod.sigterm, within=TERMINATION_S, after=fault.healing_at)


def deletion_by_force(pod: Pod) -> actions.Action[Observation]:
    by_force = ("--force", "--grace-period=0")
    return actions.kubectl("delete", "pod", pod.name, f"--namespace={pod.namespace}", *by_force)
