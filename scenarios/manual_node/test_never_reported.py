"""Hand-made Nodes without a kubelet."""

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, UNREACHABLE, ZONE_LABEL, Node, unique
from nodeproof.scenario.sources import audit

STARTUP_GRACE = windows.formula("period", "S", "S - 1 - slack", "S + P + 1 + slack")
"""The grace period counts from creationTimestamp, which has no fraction of a second."""
ONE_ROUND = "P + 1"


@needs(nodes=2, duration_s="3S + 15")
def test_node_without_kubelet_becomes_unknown_and_gets_no_pods(lab: Lab, claim: Expectations) -> None:
    """With a cloud, its node lifecycle controller would find no instance for this Node and delete it."""
    not_eligible, unknown = claim("manual-node.not-eligible"), claim("manual-node.never-updated-unknown")
    # The controller may still have the last heartbeat of an earlier Node with the same name.
    node = Node(unique("by-hand"))
    creation, no_schedule = node.created, node.taint(UNREACHABLE, "NoSchedule").added
    labels = {HOSTNAME_LABEL: node, ZONE_LABEL: lab.nodes()[0].zone}
    # Enough capacity for the pods: only the Node's health can keep them away.
    large_enough = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    body = {"metadata": {"name": node, "labels": labels}, "status": large_enough}

    with lab.record():
        lab.run(actions.send_request("POST", "/api/v1/nodes", body))
        # Until the startup grace period ends, the Node has no NoSchedule taint (doNoScheduleTaintingPass).
        early_pod = lab.run(actions.pending_pod(only_on=node))
        not_eligible.expect(early_pod.bound, within="0.7S", after=early_pod.created)
        loss = unknown.expect(node.unknown, within=STARTUP_GRACE, after=creation)
        claim("monitoring.startup-grace").expect_later(loss)
        reason = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
            condition = moments.condition_reported(node, type_, "Unknown", *reason)
            unknown.expect_later(condition, within=STARTUP_GRACE, after=creation)
        lab.wait_for(no_schedule.after(creation, STARTUP_GRACE))
        pod = lab.run(actions.pending_pod(only_on=node))
        not_eligible.expect(pod.unschedulable, within=5, after=pod.created)
        not_eligible.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
        expect_removed_only_by_kubectl(lab, claim, node)


def expect_removed_only_by_kubectl(lab: Lab, claim: Expectations, node: Node) -> None:
    """Expect that the Node stays until it is deleted by hand, and does not come back."""
    creation, removal = node.created, node.removed
    deletions = audit(verb="delete", resource="nodes", name=node)
    names = ("zone_size", "unhealthy_nodes_in_zone")
    gauges = [probes.zone_metric(name, lab.nodes()[0].zone) for name in names]
    stops_checks, kept = claim("manual-node.delete-stops-checks"), claim("manual-node.object-kept")
    no_cloud, by_hand = claim("cloud.none-without-provider"), claim("deletion-gc.manual-needed")
    registration, event = (node.event(reason) for reason in ("RegisteredNode", "RemovingNode"))

    kept.expect_later(registration, within=ONE_ROUND, after=creation)
    no_removal = kept.never(removal, throughout="3S", after=creation)
    for expectation in (no_cloud, by_hand):
        expectation.expect_later(no_removal)
    before = [lab.observe(gauge) for gauge in gauges]
    answer = lab.run(actions.kubectl("delete", "node", node, may_fail=True))
    by_hand.expect_value(answer, {"status": 0})
    stops_checks.expect(event, within=ONE_ROUND, after=removal)
    stops_checks.never(creation, throughout=lab.quiet_s, after=removal)
    for gauge, size in zip(gauges, before, strict=True):
        stops_checks.expect_later(checks.grew(size, lab.observe(gauge), -1, -1))
    lab.collect(deletions)
    existence = {"after": creation, "until": deletions.collected}
    stops_checks.expect_later(checks.counted(event, 1, 1, **existence))
    kept.expect_later(checks.counted(registration, 0, 1, **existence))
    for expectation in (kept, no_cloud, by_hand):
        expectation.expect_later(checks.counted(deletions.request, 1, 1, **existence))
