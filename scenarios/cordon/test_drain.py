"""Pods of a node that is cordoned and then drained."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import Pod, Workload, preferring, workload

CONTAINER_START_S, DELETION_S = 30.0, 10.0
DRAIN_FLAGS = ("--force", "--timeout=30s")
"""Pods without a controller block a drain, too."""


@needs(nodes=3, faulted=1, duration_s="4P + 35")
def test_cordon_keeps_all_pods_and_drain_keeps_daemonset_pods(lab: Lab, claim: Expectations) -> None:
    """The kubelet restarts first: after 25 events, a source is limited to one event in five minutes."""
    node = lab.target
    daemons, deployment = workload("DaemonSet"), workload("Deployment", **preferring(node))

    with lab.record():
        with lab.inject(faults.unit_down(node)) as fault:
            pass
        renewal = moments.first_after(node.lease_renewal, after=fault.healing_at)
        lab.wait_for(renewal.after(fault.healing_at, windows.recovery()))
        pod = lab.run(actions.run_pod(on=node))
        for controller in (daemons, deployment):
            lab.run(controller.make)
            lab.wait_for(
                controller.running_on(node).after(controller.make.begun, windows.up_to(CONTAINER_START_S))
            )
        expect_pods_stay_after_cordon(lab, claim, pod, daemons, deployment)
        expect_drain(lab, claim, daemons, deployment)
        lab.run(actions.kubectl("uncordon", node))
        kubelet_event = claim("cordon.kubelet-event")
        refused, allowed = (
            moments.event_reported(reason, "Node", node, "")
            for reason in ("NodeNotSchedulable", "NodeSchedulable")
        )
        kubelet_event.expect(allowed, within=windows.status_update(), after=node.uncordoned)
        # Not again at each report of the status.
        once = checks.counted(refused, 1, 1, after=fault.healing_at, until=node.uncordoned)
        kubelet_event.expect_later(once)


def expect_pods_stay_after_cordon(
    lab: Lab, claim: Expectations, pod: Pod, daemons: Workload, deployment: Workload
) -> None:
    node, unschedulable, all_run = lab.target, lab.target.cordoned, deployment.running_on(lab.target)
    bound = workload("Deployment", nodeName=node)
    long_s = 2 * lab.configuration["P"] + lab.quiet_s

    # Cordon and pods come from separate watches. An absence is certain to cover the cordon only if it starts
    # well before it.
    lab.wait_for(deployment.deletion.never_after(all_run, windows.absence(lab.clear_s)))
    lab.run(actions.kubectl("cordon", node))
    claim("cordon.kubelet-event").expect(
        moments.event_reported("NodeNotSchedulable", "Node", node, ""),
        within=windows.status_update(),
        after=unschedulable,
    )
    lab.run(bound.make)
    claim("cordon.direct-binding-bypass").expect(
        bound.running_on(node), within=windows.up_to(CONTAINER_START_S), after=bound.make.begun
    )
    since_cordon = (unschedulable, windows.absence(long_s))
    since_before = (all_run, windows.absence(lab.clear_s + long_s))
    for start, window in (since_cordon, since_before):
        for deletion in (pod.deletion, daemons.deletion, deployment.deletion):
            claim("cordon.keeps-existing-pods").never(deletion, throughout=window, after=start)


def expect_drain(lab: Lab, claim: Expectations, daemons: Workload, deployment: Workload) -> None:
    """Expect a drain to fail on pods of a DaemonSet, and --ignore-daemonsets to leave them in place."""
    drain_leaves_daemonset = claim("cordon.drain-leaves-daemonset")
    drain = actions.kubectl("drain", lab.target, "--ignore-daemonsets", *DRAIN_FLAGS, may_fail=True)
    refusal = lab.run(actions.kubectl("drain", lab.target, *DRAIN_FLAGS, may_fail=True))
    drain_leaves_daemonset.expect_later(
        checks.shows(refusal, {"status": 1, "stderr": {"$contains": "--ignore-daemonsets"}})
    )
    drain_leaves_daemonset.expect_later(checks.shows(lab.run(drain), {"status": 0}))
    drain_leaves_daemonset.expect(deployment.deletion, within=windows.up_to(DELETION_S), after=drain.begun)
    drain_leaves_daemonset.never(daemons.deletion, throughout=windows.absence(lab.quiet_s), after=drain.begun)
