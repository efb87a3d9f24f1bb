"""Taints that a node gets for its conditions."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, ZONE_LABEL, Node, tolerates, unique
from nodeproof.scenario.types import Moment

HOSTNAME, SCHEDULING_S = "kubernetes.io/hostname", 15
PROBLEMS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}


@needs(nodes=2, duration_s="30")
def test_node_gets_a_noschedule_taint_for_each_bad_condition(lab: Lab, claim: Expectations) -> None:
    """The Node has no kubelet, which would correct its conditions."""
    node, clear = Node(unique("by-hand")), lab.clear_s
    by_condition, network = claim("taints.noschedule-by-condition"), claim("conditions.network-unavailable")

    with lab.record():
        conditions = lab.observe(probes.node_field(lab.target, "status.conditions"))
        network.expect_value(conditions, {"$not": [{"type": "NetworkUnavailable"}]})
        # An event within the slack of an end of the counted time may lie beyond it.
        lab.wait_for(node.created.never_after(moments.recording_began(), clear))
        lab.run(actions.create_node(node, {HOSTNAME: node, ZONE_LABEL: lab.nodes()[0].zone}))
        lab.run(actions.keep_alive(node))
        for type_, key in PROBLEMS.items():
            taint = node.taint(key, "NoSchedule")
            bad, good = (node.condition(type_, status) for status in ("True", "False"))
            lab.run(actions.set_condition(node, type_, "True"))
            added = by_condition.expect(taint.added, within=5, after=bad)
            lab.run(actions.set_condition(node, type_, "False"))
            removed = by_condition.expect(taint.removed, within=5, after=good)
            for check in (added, removed) if type_ == "NetworkUnavailable" else ():
                network.expect_later(check)
        lab.wait_for(bad.never_after(good, clear))
        one_by_one = lab.observe(probes.node_field(node, "spec.taints")).completed
        for key in PROBLEMS.values():
            no_schedule = node.taint(key, "NoSchedule").added
            no_execute = node.taint(key, "NoExecute").added
            once = checks.counted(no_schedule, 1, 1, after=moments.recording_began(), until=one_by_one)
            by_condition.expect_later(once)
            # A Node that does not exist cannot have a taint.
            by_condition.expect_none(no_execute, after=node.created, until=one_by_one)
        expect_taints_of_all_conditions(lab, claim, node, one_by_one)


def expect_taints_of_all_conditions(lab: Lab, claim: Expectations, node: Node, since: Moment) -> None:
    """Expect all taints of a Node with all problems, and that it takes no pod that tolerates only three.

    A DaemonSet's pod on the host's network tolerates all of them.
    """
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in PROBLEMS.values()]
    avoids, allows = claim("taints.scheduler-avoids"), claim("taints.toleration-allows")
    # An event within the slack of an end of the counted time may lie in it.
    lab.wait_for(node.removed.never_after(since, lab.clear_s))
    # A PATCH replaces the list of conditions, so it names all of them.
    conditions = [{"type": type_, "status": "True", "reason": "Said"} for type_ in ("Ready", *PROBLEMS)]
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"status": {"capacity": capacity, "conditions": conditions}}
    lab.run(actions.send_request("PATCH", f"/api/v1/nodes/{node}/status", status))
    for type_, key in PROBLEMS.items():
        bad = moments.first_after(node.condition(type_, "True"), after=since)
        added = moments.first_after(node.taint(key, "NoSchedule").added, after=since)
        claim("taints.noschedule-by-condition").expect(added, within=5, after=bad)
    three = [[entry for entry in tolerations if entry != other] for other in tolerations]
    avoided_pods = [lab.run(actions.pending_pod(only_on=node, tolerations=group)) for group in three]
    tolerant = lab.run(actions.pending_pod(only_on=node, tolerations=tolerations))
    daemons = actions.workload("DaemonSet", hostNetwork=True, nodeSelector={HOSTNAME: node})
    lab.run(daemons.make)
    for pod in avoided_pods:
        avoids.expect(pod.unschedulable, within=SCHEDULING_S, after=pod.created)
    allows.expect(tolerant.bound, within=SCHEDULING_S, after=tolerant.created)
    daemon = daemons.pod_written(spec={"nodeName": node})
    allows.expect(daemon, within=SCHEDULING_S, after=daemons.make.begun)
    for pod in avoided_pods:
        avoids.never(pod.bound, throughout=lab.quiet_s, after=pod.created)


@needs(nodes=2, faulted=1, duration_s="G + 35")
def test_unreachable_taint_replaces_not_ready_taint_of_partitioned_node(
    lab: Lab, claim: Expectations
) -> None:
    """Its pods are to be marked as not ready, like those of a node that was Ready until then."""
    node, exclusive = lab.target, claim("taints.mutually-exclusive")
    not_ready, unreachable = (node.taint(key) for key in (NOT_READY, UNREACHABLE))
    pod = lab.run(actions.run_pod(on=node, tolerations=[tolerates(NOT_READY), tolerates(UNREACHABLE)]))
    marked = claim("conditions.pods-marked-if-not-ready-before")

    with lab.record(), lab.inject(faults.patch_ready(node)):
        lab.wait_for(not_ready.added.after(node.not_ready, windows.taint_pass()))
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            claim("monitoring.detection-time").expect_later(node.detection)
            exclusive.expect(unreachable.added, within=windows.taint_pass(), after=node.unknown)
            exclusive.expect(not_ready.removed, within=1, after=unreachable.added)
            exclusive.never(unreachable.removed, throughout=lab.quiet_s, after=unreachable.added)
            marked.expect(pod.unready, within=windows.monitor_pass(), after=node.unknown)
        lab.wait_for(node.lease_renewal.after(fault.healed_at, windows.recovery()))
        lab.run(actions.set_condition(node, "Ready", "False"))
        again = moments.first_after(node.not_ready, after=fault.healed_at)
        tainted_again = moments.first_after(not_ready.added, after=again)
        exclusive.expect(tainted_again, within=windows.taint_pass(), after=again)
        untainted = moments.first_after(unreachable.removed, after=again)
        exclusive.expect(untainted, within=1, after=tainted_again)
