"""Hand-made Nodes without a kubelet."""

import uuid

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, ZONE_LABEL, Node
from nodeproof.scenario.sources import audit

NODES = "/api/v1/nodes"
GAUGES = ("node_collector_zone_size", "node_collector_unhealthy_nodes_in_zone")
LARGE_ENOUGH = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
"""Enough capacity for the pods: only the Node's health can keep them away."""
STARTUP_GRACE = windows.formula("period", "S", "S - 1 - slack", "S + P + 1 + slack")
"""The grace period counts from creationTimestamp, which has no fraction of a second."""
DURING_STARTUP = windows.up_to("0.7S")
"""Well before the startup grace period ends."""
LONG = windows.absence("3S")
ONE_PASS = windows.up_to("P + 1")
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
NEVER_REPORTED = ("NodeStatusNeverUpdated", "Kubelet never posted node status.")


@needs(nodes=2, duration_s="3S + 15")
def test_node_without_kubelet_becomes_unknown_and_gets_no_pods(lab: Lab, claim: Expectations) -> None:
    """With a cloud, its node lifecycle controller would find no instance for this Node and delete it."""
    not_eligible = claim("manual-node.not-eligible")
    # The controller may still have the last heartbeat of an earlier Node with the same name.
    node = Node(f"by-hand-{uuid.uuid4().hex[:8]}")
    creation = node.created
    no_schedule = node.taint(UNREACHABLE, "NoSchedule").added
    labels = {"kubernetes.io/hostname": node, ZONE_LABEL: lab.nodes()[0].zone}
    metadata = {"name": node, "labels": labels}

    with lab.record():
        lab.run(actions.send_request("POST", NODES, {"metadata": metadata, "status": LARGE_ENOUGH}))
        # Until the startup grace period ends, the Node has no NoSchedule taint (doNoScheduleTaintingPass).
        early_pod = lab.run(actions.pending_pod(only_on=node))
        not_eligible.expect(early_pod.bound, within=DURING_STARTUP, after=early_pod.created)
        unknown = claim("manual-node.never-updated-unknown").expect(
            node.unknown, within=STARTUP_GRACE, after=creation
        )
        claim("monitoring.startup-grace").expect_later(unknown)
        for type_ in CONDITIONS:
            condition = moments.condition_reported(node, type_, "Unknown", *NEVER_REPORTED)
            claim("manual-node.never-updated-unknown").expect_later(
                condition, within=STARTUP_GRACE, after=creation
            )
        lab.wait_for(no_schedule.after(creation, STARTUP_GRACE))
        pod = lab.run(actions.pending_pod(only_on=node))
        not_eligible.expect(pod.unschedulable, within=5, after=pod.created)
        not_eligible.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
        expect_removed_only_by_kubectl(lab, claim, node)


def expect_removed_only_by_kubectl(lab: Lab, claim: Expectations, node: Node) -> None:
    """Expect that the Node stays until it is deleted by hand, and does not come back."""
    creation, removal = node.created, node.removed
    deletions = audit(verb="delete", resource="nodes", name=node)
    zone = f":\x00:{lab.nodes()[0].zone}"
    gauges = [probes.metric("kube-controller-manager", name, zone=zone) for name in GAUGES]
    stops_checks, kept = claim("manual-node.delete-stops-checks"), claim("manual-node.object-kept")
    registration, event = (node.event(reason) for reason in ("RegisteredNode", "RemovingNode"))

    kept.expect_later(registration, within=ONE_PASS, after=creation)
    no_removal = kept.never(removal, throughout=LONG, after=creation)
    claim("cloud.none-without-provider").expect_later(no_removal)
    claim("deletion-gc.manual-needed").expect_later(no_removal)
    before = [lab.observe(gauge) for gauge in gauges]
    answer = lab.run(actions.kubectl("delete", "node", node, may_fail=True))
    claim("deletion-gc.manual-needed").expect_value(answer, {"status": 0})
    stops_checks.expect(event, within=ONE_PASS, after=removal)
    stops_checks.never(creation, throughout=lab.quiet_s, after=removal)
    for gauge, size in zip(gauges, before, strict=True):
        stops_checks.expect_later(checks.grew(size, lab.observe(gauge), -1, -1))
    lab.collect(deletions)
    stops_checks.expect_later(checks.counted(event, 1, 1, after=creation, until=deletions.collected))
    kept.expect_later(checks.counted(registration, 0, 1, after=creation, until=deletions.collected))
    one_deletion = checks.counted(deletions.request, 1, 1, after=creation, until=deletions.collected)
    kept.expect_later(one_deletion)
    claim("cloud.none-without-provider").expect_later(one_deletion)
    claim("deletion-gc.manual-needed").expect_later(one_deletion)
