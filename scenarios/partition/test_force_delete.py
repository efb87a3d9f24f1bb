"""Pods of an unreachable node that a user deletes by force, and their containers."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Pod, Witness, preferring, tolerates, workload

TOLERATION_S = 300
"""Toleration of the witness: only the user deletes it."""
RECONNECTION_S = 45
"""Longest time until a kubelet drops a dead connection: 30 s and 15 s of HTTP/2, by default."""
CONTAINER_START_S, AT_ONCE_S, REPLACEMENT_S, TERMINATION_S = 60.0, 3.0, 10.0, RECONNECTION_S + 15.0
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
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=TOLERATION_S), on=node))
        lab.run(stateful.make)
        lab.wait_for(stateful.running_on(node).after(stateful.make.begun, CONTAINER_START_S))
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            delete_pod = actions.kubectl(*force_delete_arguments(pod))
            delete_ordinal = actions.kubectl(*force_delete_arguments(ordinal))
            lab.run(delete_pod)
            lab.run(delete_ordinal)
            answer = lab.run(
                actions.send_request("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
            )
            force_delete.expect_value(answer, {"status": 404})
            force_delete.expect(pod.removal, within=AT_ONCE_S, after=delete_pod.begun)
            force_delete.expect(ordinal.replacement, within=REPLACEMENT_S, after=delete_ordinal.begun)
            force_delete.expect(
                stateful.running_on({"$not": {"$in": [None, node]}}),
                within=CONTAINER_START_S,
                after=ordinal.replacement,
            )
            lab.wait_for(pod.replacement.never_after(pod.removal, LIVES_S))
        lab.wait_until_ready(node, fault)
        # The API does not show when the kubelet has ended the deleted pod.
        cleared = windows.absence(TERMINATION_S + lab.clear_s)
        lab.wait_for(pod.replacement.never_after(fault.healing_at, cleared))
        lab.collect(pod)

    force_delete.expect_later(checks.stays_alive(pod.name, pod.removal, fault.healing_at))
    force_delete.expect_later(pod.sigterm, within=TERMINATION_S, after=fault.healing_at)


def force_delete_arguments(pod: Pod) -> tuple[str, ...]:
    return ("delete", "pod", pod.name, f"--namespace={pod.namespace}", "--force", "--grace-period=0")
