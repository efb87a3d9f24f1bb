"""Pods of a node that is cordoned and then drained."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, Node, Pod, Workload, mirror_pod, preferring, workload
from nodeproof.scenario.sources import audit

STATIC_POD_START_S, CONTAINER_START_S, DELETION_S = 60.0, 30.0, 10.0
IGNORE, FORCE, DELETE_DATA = "--ignore-daemonsets", "--force", "--delete-emptydir-data"
SCRATCH = {"name": "scratch", "emptyDir": {}}
REFUSED_BY_BUDGET = "would violate the pod's disruption budget"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}"


@needs(nodes=3, faulted=1, duration_s="4P + 50")
def test_cordon_keeps_all_pods_and_drain_keeps_daemonset_pods(lab: Lab, claim: Expectations) -> None:
    """The kubelet restarts first: after 25 events, a source is limited to one event in five minutes.

    The pod of the StatefulSet gets a successor of the same name, for which the drain must not wait.
    """
    node, static = lab.target, mirror_pod(lab.target)
    daemons, deployment = workload("DaemonSet"), workload("Deployment", **preferring(node))
    stateful = workload("StatefulSet", **preferring(node), volumes=[SCRATCH])
    with_static_pods = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)

    with lab.record(), lab.inject(faults.static_pod(static)), lab.inject(with_static_pods) as restart:
        lab.wait_for(static.running.after(restart.requested_at, STATIC_POD_START_S))
        lab.check_in_time(lab.find(static.running) is not None, otherwise=f"pod {static.name} did not start")
        pod, other = (lab.run(actions.run_pod(on=name)) for name in (node, lab.others[0]))
        lab.run(actions.disruption_budget(deployment))
        for controller in (daemons, deployment, stateful):
            lab.start(controller, on=node, within_s=CONTAINER_START_S)
            is_there = lab.find(controller.running_on(node)) is not None
            # A restarted kubelet may first report that it is not ready, and its node is tainted for that.
            lab.check_in_time(is_there, otherwise=f"no pod of {controller.name} is there")
        expect_refused_drain(lab, claim, deployment)
        lab.run(actions.send_request("DELETE", BUDGETS.format(deployment.namespace, deployment.name)))
        expect_pods_stay_after_cordon(lab, claim, pod, daemons, deployment)
        lab.run(actions.kubectl("uncordon", node))
        kubelet_event = claim("cordon.kubelet-event")
        refused, allowed = (node.event(reason) for reason in ("NodeNotSchedulable", "NodeSchedulable"))
        kubelet_event.expect(allowed, within=windows.status_update(), after=node.uncordoned)
        # Not again at each report of the status.
        once = checks.counted(refused, 1, 1, after=restart.requested_at, until=node.uncordoned)
        kubelet_event.expect_later(once)
        expect_drain(lab, claim, pod, (static, other), (daemons, deployment, stateful))


def expect_refused_drain(lab: Lab, claim: Expectations, deployment: Workload) -> None:
    """Expect that a drain evicts no pod whose budget forbids it, tries again, and fails after its timeout.

    A dry run leaves the pod where it is even if its eviction is allowed.
    """
    selected = f"--pod-selector={actions.LABEL}={deployment.name}"
    flags = (IGNORE, selected, "--timeout=4s", "--dry-run=server")
    ended = lab.run(actions.kubectl("drain", lab.target, *flags, may_fail=True))
    errors = str(ended.value["stderr"])
    is_late = "global timeout reached" in errors and REFUSED_BY_BUDGET not in errors
    lab.check_in_time(not is_late, otherwise="the eviction was not requested in time")
    for text in ("will retry after", REFUSED_BY_BUDGET):
        refusal = {"status": 1, "stderr": {"$contains": text}}
        claim("cordon.drain-respects-budgets").expect_value(ended, refusal)


def expect_pods_stay_after_cordon(
    lab: Lab, claim: Expectations, pod: Pod, daemons: Workload, deployment: Workload
) -> None:
    node, unschedulable, all_run = lab.target, lab.target.cordoned, deployment.running_on(lab.target)
    bound = workload("Deployment", nodeName=node)
    long_s = 2 * lab.configuration["P"] + lab.quiet_s
    bypass, keeps = claim("cordon.direct-binding-bypass"), claim("cordon.keeps-existing-pods")
    event = node.event("NodeNotSchedulable")

    # Cordon and pods come from separate watches. An absence is certain to cover the cordon only if it starts
    # well before it.
    lab.wait_for(deployment.deletion.never_after(all_run, lab.clear_s))
    lab.run(actions.kubectl("cordon", node))
    claim("cordon.kubelet-event").expect(event, within=windows.status_update(), after=unschedulable)
    lab.run(bound.make)
    bypass.expect(bound.running_on(node), within=CONTAINER_START_S, after=bound.make.begun)
    for start, absence_s in ((unschedulable, long_s), (all_run, lab.clear_s + long_s)):
        for deletion in (pod.deletion, daemons.deletion, deployment.deletion):
            keeps.never(deletion, throughout=absence_s, after=start)


def expect_drain(
    lab: Lab,
    claim: Expectations,
    pod: Pod,
    left: Sequence[Pod],
    controllers: tuple[Workload, Workload, Workload],
) -> None:
    """Expect a drain to refuse pods of a DaemonSet, of no controller and with an emptyDir without a flag.

    It evicts all others, leaves the pods `left`, cordons the node first, and ends when the others are gone.
    A dry run changes nothing.
    """
    daemons, deployment, stateful = controllers
    leaves_daemons, evicts = claim("cordon.drain-leaves-daemonset"), claim("cordon.drain-evicts")
    dry, unforced, unignoring, drain = (
        actions.kubectl("drain", lab.target, *flags, "--timeout=50s", may_fail=True)
        for flags in (
            (IGNORE, FORCE, DELETE_DATA, "--dry-run=server"),
            (IGNORE,),
            (FORCE,),
            (IGNORE, FORCE, DELETE_DATA),
        )
    )
    requests = {"resource": "pods", "name": pod.name, "namespace": pod.namespace}
    evictions = audit(verb="create", subresource="eviction", **requests)
    others = audit(verb="delete", user={"$not": f"system:node:{lab.target}"}, **requests)

    evicts.expect_value(lab.run(dry), {"status": 0})
    for expectation, refused, flag in ((evicts, unforced, FORCE), (leaves_daemons, unignoring, IGNORE)):
        refusal = {"status": 1, "stderr": {"$contains": flag}}
        answer = lab.run(refused)
        expectation.expect_value(answer, refusal)
        evicts.expect_value(answer, {"stderr": {"$contains": DELETE_DATA}})
    cordoned = lab.observe(probes.node_field(lab.target, "spec.unschedulable"))
    evicts.expect_value(cordoned, True)
    ended = lab.run(drain)
    names = (pod.name, f"{deployment.name}-", f"{stateful.name}-")
    is_late = ended.value["status"] != 0 and any(name in pods_of(lab, lab.target) for name in names)
    lab.check_in_time(not is_late, otherwise="a pod did not end in time for drain")
    drained = checks.shows(ended, {"status": 0})
    evicts.expect_later(leaves_daemons.expect_later(drained))
    evicts.expect_value(lab.run(actions.send_request("GET", pod.path)), {"status": 404})
    graceful = pod.became({"metadata": {"deletionGracePeriodSeconds": 1}})
    evicts.expect(graceful, within=DELETION_S, after=drain.begun)
    leaves_daemons.expect(deployment.deletion, within=DELETION_S, after=drain.begun)
    evicts.expect(stateful.deletion, within=DELETION_S, after=drain.begun)
    # Nothing else deletes them, so the absence may begin before the drain.
    absence = windows.absence_including_anchor(lab.quiet_s)
    for kept in left:
        evicts.never(kept.deletion, throughout=absence, after=drain.begun)
    leaves_daemons.never(daemons.deletion, throughout=lab.quiet_s, after=drain.begun)
    lab.collect(evictions, others)
    # One eviction is that of the dry run.
    for source, low, high in ((evictions, 2, 9), (others, 0, 0)):
        span = {"after": moments.recording_began(), "until": source.collected}
        evicts.expect_later(checks.counted(source.request, low, high, **span))


def pods_of(lab: Lab, node: Node) -> str:
    """Return kubectl's list of all pods of a node."""
    on_node = ("--all-namespaces", f"--field-selector=spec.nodeName={node}", "--no-headers")
    return str(lab.run(actions.kubectl("get", "pods", *on_node)).value["stdout"])
