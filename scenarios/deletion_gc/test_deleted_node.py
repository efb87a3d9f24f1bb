"""Pods and Lease of a Node that is deleted."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Node, Pod, preferring, unique, workload

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SCHEDULING_S, EARLY_S, COLLECTION_S = 15.0, 20.0, 85.0
"""EARLY_S is less than the shortest quarantine, COLLECTION_S more than the longest."""


@needs(nodes=3, faulted=2, duration_s="110")
def test_pods_and_lease_of_deleted_node_are_removed_after_quarantine(lab: Lab, claim: Expectations) -> None:
    """The kubelet runs on and does not register again.

    The collector runs every 20 s and removes pods whose Node was missing for 40 s (gcCheckPeriod and
    quarantineTime in pkg/controller/podgc/gc_controller.go): 40 to 80 s after the deletion.
    """
    node, early = lab.targets
    lab.run(actions.wait_podgc_quarantine(node, early))
    pod, early_pod = lab.run(actions.run_pod(on=node)), lab.run(actions.run_pod(on=early))
    # The counter is by namespace, and in the common one other scenarios may lose Nodes, too.
    namespace = actions.new_namespace()
    pods = workload("StatefulSet", namespace=namespace.name, **preferring(node))
    deletion, early_deletion = node.removed, early.removed

    with lab.record():
        lab.run(namespace.make)
        lab.start(pods, on=node, within_s=60.0)
        owner = {"body": {"metadata": {"ownerReferences": [{"kind": "Node", "name": node}]}}}
        lease = lab.run(actions.send_request("GET", f"{LEASES}/{node}"))
        claim("heartbeat.lease-owner").expect_value(lease, owner)
        with lab.inject(faults.delete_node(early, lab.labels(early))):
            lab.wait_for(early_pod.removal.never_after(early_deletion, EARLY_S))
        manual_node, ended_pods = run_ended_pods(lab)
        lab.run(actions.kubectl("delete", "node", manual_node))
        with lab.inject(faults.delete_node(node, lab.labels(node))):
            expect_event_and_no_lease(claim, node)
            expect_removal(claim, pod)
            for ended in ended_pods:
                removed = claim("deletion-gc.pods-removed")
                # A quarantine for these pods' Node may have begun before it was deleted.
                removed.expect(ended.removal, within=COLLECTION_S, after=manual_node.removed)
            cancelled = claim("deletion-gc.quarantine-cancel")
            cancelled.never(early_pod.removal, throughout=COLLECTION_S, after=early_deletion)
            creation = moments.created("pods", f"{pods.name}-0", pods.namespace)
            replacement = moments.first_after(creation, after=deletion)
            freed = claim("deletion-gc.names-freed")
            freed.expect(replacement, within=f"80 + {SCHEDULING_S}", after=deletion)
            removals, labels = "pod_gc_collector_force_delete_pods_total", {"namespace": namespace.name}
            counter = probes.metric("kube-controller-manager", removals, reason="orphaned", **labels)
            claim("deletion-gc.force-metric").expect_value(lab.observe(counter), 1)
    threshold = checks.default_of("terminated-pod-gc-threshold")
    claim("deletion-gc.terminated-threshold").expect_later(threshold)


def run_ended_pods(lab: Lab) -> tuple[Node, Sequence[Pod]]:
    """Give a Node without a kubelet two finished pods and a Terminating one, which no kubelet removes."""
    node = Node(unique("by-hand"))
    lab.run(actions.create_node(node))
    succeeded, failed, terminating = pods = [lab.run(actions.bound_pod(to=node)) for _number in range(3)]
    for pod, phase in ((succeeded, "Succeeded"), (failed, "Failed")):
        lab.run(actions.send_request("PATCH", f"{pod.path}/status", {"status": {"phase": phase}}))
    lab.run(actions.send_request("DELETE", terminating.path))
    return node, pods


def expect_event_and_no_lease(claim: Expectations, node: Node) -> None:
    deletion, event = node.removed, node.event("RemovingNode")
    claim("deletion-gc.event").expect(event, within=windows.monitor_pass(), after=deletion)
    lease = moments.removed("leases", node, "kube-node-lease")
    removal = claim("deletion-gc.lease-removed").expect(lease, within=60, after=deletion)
    claim("heartbeat.lease-owner").expect_later(removal)
    # The kubelet runs on, and has tried to renew it several times.
    again = moments.created("leases", node, "kube-node-lease")
    claim("deletion-gc.lease-removed").never(again, throughout=EARLY_S, after=lease)


def expect_removal(claim: Expectations, pod: Pod) -> None:
    """Expect that a pod is failed by the collector, and then removed."""
    deletion, failed_first = Node(pod.node).removed, claim("deletion-gc.failed-phase-first")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    failed = pod.became({"status": {"phase": "Failed", "conditions": [condition]}})
    failed_first.expect(failed, within=windows.quarantine(), after=deletion)
    failed_first.expect(pod.removal, within=windows.afterwards(5), after=failed)
    claim("deletion-gc.pods-removed").expect(pod.removal, within=windows.quarantine(), after=deletion)
