"""Pods of an unreachable node: evicted, recreated and staying ones."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Pod, Workload, preferring, tolerates, workload
from nodeproof.scenario.sources import audit
from nodeproof.scenario.types import Injection

MANAGER = "kube-controller-manager"
REASON = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
CONTAINER_START_S = 60.0
EVICTIONS = "node_collector_evictions_total"
MARK = {"type": "DisruptionTarget", "reason": "DeletionByTaintManager"}


@needs(nodes=3, faulted=1, duration_s="G + T + 4P + 40")
def test_pods_of_unreachable_node_are_evicted_unless_tolerant(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    zone = next(entry.zone for entry in lab.nodes() if entry.name == node)
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    daemons = workload("DaemonSet")
    deployment, stateful_set = (
        workload(kind, **preferring(node), tolerations=[tolerates(UNREACHABLE, lab.toleration_s)])
        for kind in ("Deployment", "StatefulSet")
    )
    counter = probes.metric(MANAGER, EVICTIONS, zone=f":\x00:{zone}")
    no_schedule = node.taint(UNREACHABLE, "NoSchedule").added

    with lab.record():
        for controller in (daemons, deployment, stateful_set):
            lab.run(controller.make)
            lab.wait_for(
                controller.running_on(node).after(controller.make.begun, windows.up_to(CONTAINER_START_S))
            )
        lab.run(actions.disruption_budget(deployment))
        before = lab.observe(counter)
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
            lab.wait_for(no_schedule.after(node.unknown, windows.up_to(5)))
            pending = lab.run(actions.pending_pod(only_on=node))
            expect_unknown_node(lab, claim, fault)
            expect_eviction(lab, claim, pod, fault)
            expect_replacement(lab, claim, deployment, stateful_set)
            expect_no_binding(lab, claim, pending)
            expect_no_deletion(lab, claim, tolerant, daemons)
            after = lab.observe(counter)
        claim("monitoring.recovery").expect(node.ready, within=windows.recovery(), after=fault.healing_at)
        expect_direct_deletion(lab, claim, pod, fault)
    # The taint may be written twice, and each write is counted.
    claim("eviction.metrics").expect_later(checks.grew(before, after, 1, 2))


def expect_unknown_node(lab: Lab, claim: Expectations, fault: Injection) -> None:
    node = lab.target
    for kind in ("Memory", "Disk", "PID"):
        pressure = moments.condition_reported(node, f"{kind}Pressure", "Unknown", *REASON)
        claim("conditions.pressure-unknown-when-unreachable").expect(
            pressure, within=windows.up_to(1.0), after=node.unknown
        )
    by_its_controller = {"reason": "NodeNotReady", "source": {"component": "node-controller"}}
    event = moments.written("events", {**by_its_controller, "involvedObject": {"kind": "Node", "name": node}})
    claim("monitoring.not-ready-event").expect(event, within=windows.up_to(2), after=node.unknown)
    claim("monitoring.not-ready-event").expect_later(checks.counted(event, 1, 1, **fault.span))


def expect_eviction(lab: Lab, claim: Expectations, pod: Pod, fault: Injection) -> None:
    node, tolerated_s = lab.target, lab.toleration_s
    tainted, toleration = node.taint(UNREACHABLE, "NoExecute").added, windows.toleration(tolerated_s)
    latest = f"G + 3P + max(P, 1/E) + 1 + {tolerated_s}"
    end_to_end = windows.formula(
        "period", f"G + {tolerated_s}", f"G - 1.04R + {tolerated_s} - slack", f"{latest} + slack"
    )

    unready = pod.became({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    disruption_target = pod.became({"status": {"conditions": [{**MARK, "status": "True"}]}})
    graceful = moments.first_after(pod.became({"metadata": {"deletionGracePeriodSeconds": 1}}), after=tainted)
    event = moments.event_reported("TaintManagerEviction", "Pod", pod.name, "Marking for deletion")

    claim("conditions.pods-marked-not-ready").expect(
        unready, within=windows.monitor_pass(), after=node.unknown
    )
    claim("eviction.end-to-end-time").expect(pod.deletion, within=end_to_end, after=fault.injected_at)
    claim("eviction.graceful-delete").expect(graceful, within=toleration, after=tainted)
    claim("eviction.disruption-target").expect(disruption_target, within=toleration, after=tainted)
    claim("eviction.event").expect(event, within=toleration, after=tainted)
    claim("eviction.event").expect_later(checks.counted(event, 1, 1, **fault.span))
    claim("daemonset.not-evicted-on-node-failure").expect(pod.deletion, within=toleration, after=tainted)


def expect_replacement(lab: Lab, claim: Expectations, deployment: Workload, stateful_set: Workload) -> None:
    """Expect that the Deployment replaces its pod at once, and the StatefulSet not before its removal."""
    tainted = lab.target.taint(UNREACHABLE, "NoExecute").added
    elsewhere = {"$not": {"$in": [None, lab.target]}}
    bound, running = deployment.pod_written(spec={"nodeName": elsewhere}), deployment.running_on(elsewhere)
    second = moments.created("pods", f"{stateful_set.name}-0", stateful_set.namespace)

    claim("eviction.api-initiated").expect(
        deployment.deletion, within=windows.toleration(lab.toleration_s), after=tainted
    )
    claim("eviction.replacement").expect(bound, within=windows.up_to(5), after=deployment.deletion)
    claim("eviction.replacement").expect(running, within=windows.up_to(CONTAINER_START_S), after=bound)
    claim("partition.statefulset-no-duplicate").never(
        second, throughout=windows.absence(lab.quiet_s), after=stateful_set.deletion
    )


def expect_no_binding(lab: Lab, claim: Expectations, pod: Pod) -> None:
    unhealthy_node_avoided = claim("scheduling.unhealthy-node-avoided")
    unhealthy_node_avoided.expect(pod.unschedulable, within=windows.up_to(5), after=pod.created)
    unhealthy_node_avoided.never(pod.bound, throughout=windows.absence(lab.quiet_s), after=pod.created)


def expect_no_deletion(lab: Lab, claim: Expectations, tolerant: Pod, daemons: Workload) -> None:
    tainted = lab.target.taint(UNREACHABLE, "NoExecute").added
    longer = windows.absence_including_anchor(lab.toleration_s + 8.0)
    claim("eviction.unlimited-toleration").never(tolerant.deletion, throughout=longer, after=tainted)
    claim("daemonset.not-evicted-on-node-failure").never(daemons.deletion, throughout=longer, after=tainted)


def expect_direct_deletion(lab: Lab, claim: Expectations, pod: Pod, fault: Injection) -> None:
    """Expect one DELETE request for the pod, and none to the Eviction API."""
    pod_pattern = {"resource": "pods", "name": pod.name, "namespace": pod.namespace}
    deletions = audit(verb="delete", user={"$not": f"system:node:{lab.target}"}, **pod_pattern)
    eviction_requests = audit(verb="create", subresource="eviction", **pod_pattern)
    lab.collect(deletions, eviction_requests)
    claim("eviction.api-initiated").expect_later(checks.counted(deletions.request, 1, 1, **fault.span))
    claim("eviction.api-initiated").expect_later(
        checks.counted(eviction_requests.request, 0, 0, **fault.span)
    )
