"""Nodes created by hand: the fields that they are given count, and nothing else."""

import uuid
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, ZONE_LABEL, Node, Pod

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/nodeproof/pods"
HOSTNAME, REGION_LABEL = "kubernetes.io/hostname", "topology.kubernetes.io/region"
OLD_REGION, OLD_ZONE = (f"failure-domain.beta.kubernetes.io/{key}" for key in ("region", "zone"))
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
ALLOCATABLE = {"cpu": "1", "memory": "8Gi", "pods": "110"}
STATUS = {
    "capacity": CAPACITY,
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "conditions": [{"type": "Said", "status": "True", "reason": "AtCreation"}],
    "nodeInfo": {"kernelVersion": "nodeproof"},
}
ATTEMPT_S, BINDING_S = 5.0, 10.0
MOST_OF_IT, THE_REST = {"cpu": "600m"}, {"cpu": "300m"}
"""Parts of the allocatable CPU: beside a pod with most of it there is room for the rest only."""
MOST_OF_MEMORY = {"memory": "5Gi"}
SIZE = "node_collector_zone_size"


@needs(nodes=2, duration_s="45")
def test_scheduler_fills_manual_node_up_to_its_allocatable(lab: Lab, claim: Expectations) -> None:
    """Of 4 CPUs, 1 is allocatable: each of two pods fits, but not both together."""
    node = Node(f"by-hand-{uuid.uuid4().hex[:8]}")
    has_capacity, has_allocatable = (
        node.became({"status": {field: resources}})
        for field, resources in (("capacity", CAPACITY), ("allocatable", ALLOCATABLE))
    )
    absence_window, attempt_window, binding_window = (
        windows.absence(lab.quiet_s),
        windows.up_to(ATTEMPT_S),
        windows.up_to(BINDING_S),
    )

    with lab.record():
        lab.run(actions.create_node(node, {HOSTNAME: node}))
        lab.run(actions.keep_alive(node))
        lab.wait_for(
            node.taint(NOT_READY, "NoSchedule").removed.after(moments.recording_began(), binding_window)
        )
        pod = lab.run(actions.pending_pod(only_on=node))
        claim("manual-node.capacity-required").expect(
            pod.unschedulable, within=attempt_window, after=pod.created
        )
        claim("manual-node.capacity-required").never(pod.bound, throughout=absence_window, after=pod.created)
        lab.run(actions.send_request("PATCH", f"{NODES}/{node}/status", {"status": {"capacity": CAPACITY}}))
        claim("manual-node.capacity-required").expect(pod.bound, within=binding_window, after=has_capacity)
        lab.run(
            actions.send_request("PATCH", f"{NODES}/{node}/status", {"status": {"allocatable": ALLOCATABLE}})
        )
        lab.wait_for(has_allocatable.after(has_capacity, binding_window))
        first = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_IT))
        claim("scheduling.sum-of-requests").expect(first.bound, within=binding_window, after=first.created)
        second = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_IT))
        claim("scheduling.sum-of-requests").expect(
            second.unschedulable, within=attempt_window, after=second.created
        )
        claim("scheduling.sum-of-requests").never(
            second.bound, throughout=absence_window, after=second.created
        )
        third = lab.run(actions.pending_pod(only_on=node, requests=THE_REST))
        claim("scheduling.sum-of-requests").expect(third.bound, within=binding_window, after=third.created)
        expect_sum_of_all_containers(lab, claim, node, first)


def expect_sum_of_all_containers(lab: Lab, claim: Expectations, node: Node, deleted: Pod) -> None:
    """Expect that init containers, several containers, memory and Terminating pods count, too.

    The Node has 100m of CPU left. No kubelet confirms the end of `deleted`, so it stays Terminating.
    """
    fits, attempt, binding = (
        claim("scheduling.sum-of-requests"),
        windows.up_to(ATTEMPT_S),
        windows.up_to(BINDING_S),
    )
    lab.run(actions.send_request("DELETE", f"{PODS}/{deleted.name}"))
    lab.wait_for(deleted.deletion.after(deleted.created, 60))
    half = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_MEMORY))
    fits.expect(half.bound, within=binding, after=half.created)
    too_large = [
        lab.run(actions.pending_pod(only_on=node, **fields))
        for fields in (
            {"requests": MOST_OF_IT},
            {"requests": MOST_OF_MEMORY},
            {"containers": containers("60m", "60m")},
            {"initContainers": containers("150m")},
        )
    ]
    for pod in too_large:
        fits.expect(pod.unschedulable, within=attempt, after=pod.created)
    small = lab.run(actions.pending_pod(only_on=node, containers=containers("40m", "40m")))
    fits.expect(small.bound, within=binding, after=small.created)
    for pod in too_large:
        fits.never(pod.bound, throughout=lab.quiet_s, after=pod.created)


def containers(*cpu: str) -> list[dict[str, Any]]:
    """Return containers that request so much CPU each."""
    return [
        {"name": f"c{number}", "image": "nodeproof.local/pause:1", "resources": {"requests": {"cpu": amount}}}
        for number, amount in enumerate(cpu)
    ]


@needs(nodes=2, duration_s="G + 15")
def test_manual_node_keeps_its_initial_status_and_zone(lab: Lab, claim: Expectations) -> None:
    """A zone is a region and a name, by either pair of labels; the last Node reports once, then no more."""
    mark = uuid.uuid4().hex[:8]
    region, zone = f"region-{mark}", f"zone-{mark}"
    zoned, zoned_twin, other_region, old_labels, unreporting = (
        Node(f"by-hand-{mark}-{number}") for number in range(5)
    )
    labels = {
        zoned_twin: {REGION_LABEL: region, ZONE_LABEL: zone},
        other_region: {REGION_LABEL: f"other-{mark}", ZONE_LABEL: zone},
        old_labels: {REGION_LABEL: region, ZONE_LABEL: zone, OLD_REGION: f"old-{mark}", OLD_ZONE: zone},
        unreporting: {REGION_LABEL: f"silent-{mark}", ZONE_LABEL: zone},
    }
    sizes = {f"{region}:\x00:{zone}": 2, f"other-{mark}:\x00:{zone}": 1, f"old-{mark}:\x00:{zone}": 1}
    network = {"type": "NetworkUnavailable", "status": "False", "reason": "Said"}
    ready = {"type": "Ready", "status": "True", "reason": "Said"}
    network_changed = unreporting.became({"status": {"conditions": {"$not": [network]}}})
    lost = windows.formula("within", "G + P + 1", "0", "G + P + 1 + slack")

    with lab.record():
        metadata = {"name": zoned, "labels": labels[zoned_twin]}
        response = lab.run(actions.send_request("POST", NODES, {"metadata": metadata, "status": STATUS}))
        claim("manual-node.status-on-create").expect_value(response, {"status": 201})
        node = lab.run(actions.send_request("GET", f"{NODES}/{zoned}"))
        claim("manual-node.status-on-create").expect_value(node, {"body": {"status": STATUS}})
        for name, node_labels in labels.items():
            lab.run(actions.create_node(name, node_labels))
        # The patch replaces the list of conditions: one that it lacks would be removed.
        conditions = {"status": {"conditions": [network, ready]}}
        lab.run(actions.send_request("PATCH", f"{NODES}/{unreporting}/status", conditions))
        lab.wait_for(unreporting.unknown.after(unreporting.ready, lost))
        claim("conditions.network-unavailable-untouched").never(
            network_changed, throughout=lab.configuration["P"] + 4, after=unreporting.unknown
        )
        for key, size in sizes.items():
            gauge = lab.observe(probes.metric("kube-controller-manager", SIZE, zone=key))
            claim("zones.zone-key").expect_value(gauge, size)
