"""Taints that a user puts on a node: which pods leave, and when, and which come."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    changed,
    claims,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_deletion,
    pod_unschedulable,
    recording_began,
    run_pod,
    taint,
    taint_added,
    tolerates,
    windows,
)

KEY, EFFECT = "example.com/drained", "NoExecute"
AT_ONCE_S, PLACED_S = 2, 15


@claims(
    "taints.user-noexecute-evicts",
    "taints.user-noexecute-finite",
    "taints.toleration-allows",
    "taints.scheduler-avoids",
)
@needs(nodes=2, faulted=1, lasts="4R + T + 10")
def test_pods_leave_a_node_that_a_user_taints_as_their_tolerations_say(lab: Stage, judge: Judge) -> None:
    node, short_s = lab.target, lab.toleration_s
    tainted = taint_added(node, KEY, EFFECT)

    with lab.record():
        plain, patient, loyal = (
            lab.do(run_pod(on=node, tolerations=given))
            for given in ([], [tolerates(KEY, short_s)], [tolerates(KEY)])
        )
        leaves = {pod: pod_deletion(pod.namespace, pod.name) for pod in (plain, patient, loyal)}
        with lab.inject(taint(node, KEY, EFFECT)):
            at_once = lab.wait_for(leaves[plain].after(tainted, windows.prompt(AT_ONCE_S)))
            refused, welcome = (
                lab.do(pending_pod(only_on=node, tolerations=given)) for given in ([], [tolerates(KEY)])
            )
            asked, welcomed = (pod_created(pod.namespace, pod.name) for pod in (refused, welcome))
            tried = pod_unschedulable(refused.namespace, refused.name)
            waits = lab.wait_for(tried.after(asked, windows.prompt(PLACED_S)))
            placed = pod_bound(welcome.namespace, welcome.name)
            comes = lab.wait_for(placed.after(welcomed, windows.prompt(PLACED_S)))
            in_time = lab.wait_for(leaves[patient].after(tainted, windows.toleration(short_s)))
            longer = windows.absence_from_before(short_s + lab.quiet_s)
            stays = lab.wait_for(leaves[loyal].never_after(tainted, longer))
            bound = pod_bound(refused.namespace, refused.name)
            stays_away = lab.wait_for(bound.never_after(asked, windows.absence(lab.quiet_s)))

    judge("taints.user-noexecute-evicts", at_once)
    for check in (in_time, stays):
        judge("taints.user-noexecute-finite", check)
    judge("taints.toleration-allows", comes)
    for check in (waits, stays_away):
        judge("taints.scheduler-avoids", check)


@claims("taints.user-noexecute-not-rate-limited")
@needs(nodes=3, faulted=2, lasts="15")
def test_nodes_that_a_user_taints_at_one_time_lose_their_pods_at_one_time(lab: Stage, judge: Judge) -> None:
    """The zone's limiter would let the second wait for 1/E: two seconds in `fast`, ten by default."""
    first, second = lab.targets
    one, other = (lab.do(run_pod(on=node)) for node in lab.targets)
    leaves = {pod: pod_deletion(pod.namespace, pod.name) for pod in (one, other)}

    half_s = 0.5 / lab.configuration["E"]

    with lab.record():
        # A fault waits for its node's first heartbeat.
        for node in lab.targets:
            renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")
            lab.wait_for(renewed.after(recording_began(), windows.prompt(2 * lab.configuration["R"])))
        with lab.inject(taint(first, KEY, EFFECT, also=[second])):
            at_once = [
                lab.wait_for(leaves[pod].after(taint_added(node, KEY, EFFECT), windows.prompt(1)))
                for pod, node in ((one, first), (other, second))
            ]
        # Put on too far apart, the limiter would have had a token for each.
        lab.require(taint_added(second, KEY, EFFECT), within_s=half_s, after=taint_added(first, KEY, EFFECT))

    for check in at_once:
        judge("taints.user-noexecute-not-rate-limited", check)
