"""Nodes created by hand: the fields that they are given count, and nothing else."""

from collections.abc import Sequence
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, NOT_READY, ZONE_LABEL, Node, Pod, unique

NODES, REGION_LABEL = "/api/v1/nodes", "topology.kubernetes.io/region"
OLD_REGION, OLD_ZONE = (f"failure-domain.beta.kubernetes.io/{key}" for key in ("region", "zone"))
DEVICE = "nodeproof.dev/device"
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "1Gi", DEVICE: "1"}
ALLOCATABLE = {**CAPACITY, "cpu": "1"}
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
TOO_MUCH_STORAGE, TOO_MANY_DEVICES = {"ephemeral-storage": "2Gi"}, {DEVICE: "2"}


@needs(nodes=2, duration_s="55")
def test_scheduler_fills_manual_node_up_to_its_allocatable(lab: Lab, claim: Expectations) -> None:
    """Of 4 CPUs, 1 is allocatable: each of two pods fits, but not both together."""
    node = Node(unique("by-hand"))
    capacity, allocatable = {"status": {"capacity": CAPACITY}}, {"status": {"allocatable": ALLOCATABLE}}
    has_capacity, has_allocatable = node.became(capacity), node.became(allocatable)
    required, fits = claim("manual-node.capacity-required"), claim("scheduling.sum-of-requests")

    with lab.record():
        lab.run(actions.create_node(node, {HOSTNAME_LABEL: node}))
        lab.run(actions.keep_alive(node))
        untainted = node.taint(NOT_READY, "NoSchedule").removed
        lab.wait_for(untainted.after(moments.recording_began(), BINDING_S))
        pod = lab.run(actions.pending_pod(only_on=node))
        required.expect(pod.unschedulable, within=ATTEMPT_S, after=pod.created)
        required.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
        lab.run(actions.send_request("PATCH", f"{NODES}/{node}/status", capacity))
        required.expect(pod.bound, within=BINDING_S, after=has_capacity)
        lab.run(actions.send_request("PATCH", f"{NODES}/{node}/status", allocatable))
        lab.wait_for(has_allocatable.after(has_capacity, BINDING_S))
        first = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_IT))
        fits.expect(first.bound, within=BINDING_S, after=first.created)
        second = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_IT))
        fits.expect(second.unschedulable, within=ATTEMPT_S, after=second.created)
        fits.never(second.bound, throughout=lab.quiet_s, after=second.created)
        third = lab.run(actions.pending_pod(only_on=node, requests=THE_REST))
        fits.expect(third.bound, within=BINDING_S, after=third.created)
        expect_sum_of_all_containers(lab, claim, node, first)


def expect_sum_of_all_containers(lab: Lab, claim: Expectations, node: Node, deleted: Pod) -> None:
    """Expect that other resources, init containers, sidecars, other containers and Terminating pods count.

    The Node has 100m of CPU left. No kubelet confirms the end of `deleted`, so it stays Terminating.
    """
    fits = claim("scheduling.sum-of-requests")
    lab.run(actions.send_request("DELETE", deleted.path))
    lab.wait_for(deleted.deletion.after(deleted.created, 60))
    half = lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_MEMORY))
    fits.expect(half.bound, within=BINDING_S, after=half.created)
    (sidecar,) = containers("60m")
    sidecar |= {"name": "sidecar", "restartPolicy": "Always"}
    too_large = [
        lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_IT)),
        lab.run(actions.pending_pod(only_on=node, requests=MOST_OF_MEMORY)),
        lab.run(actions.pending_pod(only_on=node, containers=containers("60m", "60m"))),
        lab.run(actions.pending_pod(only_on=node, initContainers=containers("150m"))),
        lab.run(actions.pending_pod(only_on=node, containers=containers("60m"), initContainers=[sidecar])),
        lab.run(actions.pending_pod(only_on=node, requests=TOO_MUCH_STORAGE)),
        lab.run(actions.pending_pod(only_on=node, requests=TOO_MANY_DEVICES, limits=TOO_MANY_DEVICES)),
    ]
    for pod in too_large:
        fits.expect(pod.unschedulable, within=ATTEMPT_S, after=pod.created)
    small = lab.run(actions.pending_pod(only_on=node, containers=containers("40m", "40m")))
    fits.expect(small.bound, within=BINDING_S, after=small.created)
    for pod in too_large:
        fits.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
    # No kubelet has to confirm a deletion by force.
    lab.run(actions.send_request("DELETE", half.path, {"gracePeriodSeconds": 0}))
    fits_now = too_large.pop(1)
    fits.expect(fits_now.bound, within=BINDING_S, after=half.removal)
    expect_pods_counted_again(lab, claim, node, too_large)


def expect_pods_counted_again(lab: Lab, claim: Expectations, node: Node, too_large: Sequence[Pod]) -> None:
    """Expect that a Node that is deleted and added again has no more room than before.

    Its pods remain: the pod garbage collector first puts them into quarantine.
    """
    fits, ready = claim("scheduling.sum-of-requests"), {"type": "Ready", "status": "True", "reason": "Said"}
    status = {"capacity": CAPACITY, "allocatable": ALLOCATABLE, "conditions": [ready]}
    metadata = {"name": node, "labels": {HOSTNAME_LABEL: node}}
    lab.run(actions.kubectl("delete", "node", node))
    lab.run(actions.send_request("POST", NODES, {"metadata": metadata, "status": status}))
    pod = lab.run(
        actions.pending_pod(only_on=node, requests=MOST_OF_IT, tolerations=[{"operator": "Exists"}])
    )
    fits.expect(pod.unschedulable, within=ATTEMPT_S, after=pod.created)
    # Any of them may be the first to take the room that the pods have.
    added_again = moments.first_after(node.created, after=node.removed)
    for waiting in too_large:
        fits.never(waiting.bound, throughout=lab.quiet_s, after=added_again)
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
    mark = unique("by-hand")
    region, zone = f"region-{mark}", f"zone-{mark}"
    zoned, zoned_twin, other_region, old_labels, unreporting = (
        Node(f"{mark}-{number}") for number in range(5)
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
        untouched, a_pass_s = claim("conditions.network-unavailable-untouched"), lab.configuration["P"] + 4
        untouched.never(network_changed, throughout=a_pass_s, after=unreporting.unknown)
        for key, size in sizes.items():
            gauge = probes.metric("kube-controller-manager", "node_collector_zone_size", zone=key)
            claim("zones.zone-key").expect_value(lab.observe(gauge), size)
