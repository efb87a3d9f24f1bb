"""Pods of an unreachable node: evicted, recreated and staying ones."""

from collections.abc import Mapping, Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Node, Pod, Workload, preferring, tolerates, workload
from nodeproof.scenario.sources import audit
from nodeproof.scenario.types import Injection, Moment, Observation

REPORTED = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}
CONTAINER_START_S = 60.0
GRACE_S, LONG_GRACE_S = 1, 45
"""Grace periods of pods without a controller and with one: shorter and longer than the default of 30 s."""


@needs(nodes=3, faulted=1, duration_s="G + T + 4P + 40")
def test_pods_of_unreachable_node_are_evicted_unless_tolerant(lab: Lab, claim: Expectations) -> None:
    node, entries = lab.target, lab.nodes()
    zone = next(entry.zone for entry in entries if entry.name == node)
    taint_writes = moments.no_execute_written(*(entry.name for entry in entries if entry.zone == zone))
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    daemons = workload("DaemonSet")
    pod_fields = {
        **preferring(node),
        "tolerations": [tolerates(UNREACHABLE, lab.toleration_s)],
        "terminationGracePeriodSeconds": LONG_GRACE_S,
    }
    deployment, stateful_set = workload("Deployment", **pod_fields), workload("StatefulSet", **pod_fields)
    counter = probes.zone_metric("evictions_total", zone)
    no_schedule = node.taint(UNREACHABLE, "NoSchedule").added

    with lab.record(extra_resources=("endpointslices",)):
        daemon, *owned = (run_served(lab, controller) for controller in (daemons, deployment, stateful_set))
        lab.run(actions.disruption_budget(deployment))
        lab.run(actions.disruption_budget(stateful_set, always_allow_unready=True))
        before = lab.observe(counter)
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(no_schedule.after(node.unknown, 5))
            pending = lab.run(actions.pending_pod(only_on=node))
            expect_unknown_node(lab, claim, fault)
            expect_unready_pods(
                lab, claim, [pod, tolerant, daemon, *owned], [daemons, deployment, stateful_set]
            )
            expect_allowed_drain(lab, claim, stateful_set)
            expect_eviction(lab, claim, [pod, *owned], fault)
            expect_replacement(lab, claim, deployment, stateful_set)
            expect_no_binding(lab, claim, pending)
            expect_no_deletion(lab, claim, tolerant, daemons, fault)
            after = lab.observe(counter)
            unknown = lab.run(actions.send_request("GET", f"/api/v1/nodes/{node}"))
        claim("monitoring.recovery").expect(node.ready, within=windows.recovery(), after=fault.healing_at)
        expect_known_conditions(claim, node, unknown, fault)
        expect_direct_deletions(lab, claim, [pod, *owned], fault)
    # The taint may be written twice, and each write is counted.
    claim("eviction.metrics").expect_later(checks.grew_with(before, after, taint_writes))


def run_served(lab: Lab, controller: Workload) -> Pod:
    """Run a workload with a Service, and return its pod on the target, which is a ready endpoint."""
    lab.start(controller, on=lab.target, within_s=CONTAINER_START_S)
    lab.run(actions.service(controller))
    served = endpoint_written(controller, lab.target, {"ready": True})
    lab.wait_for_required(served, within_s=CONTAINER_START_S, after=controller.make.begun)
    return lab.run(actions.pod_of(controller, on=lab.target))


def endpoint_written(over: Workload, node: str, conditions: Mapping[str, bool]) -> Moment:
    """Match a write of an EndpointSlice of a workload's Service with such an endpoint on a node."""
    labels = {"kubernetes.io/service-name": over.name}
    endpoint = {"nodeName": node, "conditions": conditions}
    return moments.written("endpointslices", {"metadata": {"labels": labels}, "endpoints": [endpoint]})


def expect_unknown_node(lab: Lab, claim: Expectations, fault: Injection) -> None:
    node, not_ready_event = lab.target, claim("monitoring.not-ready-event")
    pressures = claim("conditions.pressure-unknown-when-unreachable")
    by_condition = claim("taints.noschedule-by-condition")
    reason = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    for kind in ("Memory", "Disk", "PID"):
        pressure = moments.condition_reported(node, f"{kind}Pressure", "Unknown", *reason)
        pressures.expect(pressure, within=1.0, after=node.unknown)
        taint = node.taint(f"node.kubernetes.io/{kind.lower()}-pressure", "NoSchedule").added
        by_condition.expect_none(taint, **fault.span)
    by_its_controller = {"reason": "NodeNotReady", "source": {"component": "node-controller"}}
    event = moments.written("events", {**by_its_controller, "involvedObject": {"kind": "Node", "name": node}})
    not_ready_event.expect(event, within=2, after=node.unknown)
    not_ready_event.expect_later(checks.counted(event, 1, 1, **fault.span))


def expect_known_conditions(claim: Expectations, node: Node, unknown: Observation, fault: Injection) -> None:
    """Expect the kubelet to report all its conditions again, as of another time than that of their loss.

    One report has all of them, and the node was Unknown for seconds: whole ones tell the times apart.
    """
    # A Node that is gone has no conditions, and nothing shows that the times of a new one are others.
    conditions = unknown.value["body"]["status"]["conditions"] if unknown.value["status"] == 200 else ()
    lost = {condition["type"]: condition["lastTransitionTime"] for condition in conditions}
    pressures, times = claim("conditions.pressure-unknown-when-unreachable"), claim("conditions.times")
    for kind, (status, reason) in REPORTED.items():
        healthy = {"type": kind, "status": status, "reason": reason}
        turned = {"type": kind, "status": status, "lastTransitionTime": {"$not": lost.get(kind)}}
        for expectation, condition in ((pressures, healthy), (times, turned))[: 2 if kind in lost else 1]:
            again = node.became({"status": {"conditions": [condition]}})
            expectation.expect(again, within=windows.recovery(), after=fault.healing_at)


def expect_unready_pods(
    lab: Lab, claim: Expectations, pods: Sequence[Pod], services: Sequence[Workload]
) -> None:
    """Expect that all pods of the node are marked, each with an event, and that no endpoint stays ready."""
    marked, unknown = claim("conditions.pods-marked-not-ready"), lab.target.unknown
    for pod in pods:
        event = pod.event("NodeNotReady", "Node is not ready")
        marked.expect_later(event, within="P + 3", after=unknown)
        marked.expect(pod.unready, within=windows.monitor_pass(), after=unknown)
    for service in services:
        left = endpoint_written(service, lab.target, {"ready": False})
        marked.expect(left, within="P + 3", after=unknown)


def expect_allowed_drain(lab: Lab, claim: Expectations, stateful_set: Workload) -> None:
    """Expect that a drain (a dry run) may evict an unready pod of a budget with the policy AlwaysAllow.

    The budget allows no disruption. After a refused eviction kubectl waits for 5 s, beyond its timeout.
    """
    selected = f"--pod-selector={actions.LABEL}={stateful_set.name}"
    options = (selected, "--timeout=4s", "--dry-run=server")
    drain = lab.run(actions.kubectl("drain", lab.target, *options, may_fail=True))
    evicted = {"status": 0, "stdout": {"$contains": f"{stateful_set.name}-0 (server dry run)"}}
    claim("cordon.drain-evicts-unready").expect_value(drain, evicted)


def expect_eviction(lab: Lab, claim: Expectations, pods: Sequence[Pod], fault: Injection) -> None:
    """Expect the same of all pods; the first one has no controller."""
    tolerated_s, tainted = lab.toleration_s, lab.target.taint(UNREACHABLE).added
    toleration, nominal = windows.toleration(tolerated_s), f"G + {tolerated_s}"
    earliest, latest = f"G - 1.04R + {tolerated_s}", f"G + 3P + max(P, 1/E) + 1 + {tolerated_s}"
    end_to_end = windows.formula("period", nominal, f"{earliest} - slack", f"{latest} + slack")
    in_all, graceful = claim("eviction.end-to-end-time"), claim("eviction.graceful-delete")
    disruption, reported = claim("eviction.disruption-target"), claim("eviction.event")

    for pod in pods:
        grace_s = GRACE_S if pod == pods[0] else LONG_GRACE_S
        grace = pod.became({"metadata": {"deletionGracePeriodSeconds": grace_s}})
        mark = {"type": "DisruptionTarget", "reason": "DeletionByTaintManager", "status": "True"}
        marked = pod.became({"status": {"conditions": [mark]}})
        event = pod.event("TaintManagerEviction", "Marking for deletion")
        in_all.expect(pod.deletion, within=end_to_end, after=fault.injected_at)
        graceful.expect(grace, within=5, after=pod.deletion)
        disruption.expect(marked, within=toleration, after=tainted)
        reported.expect(event, within=toleration, after=tainted)
        reported.expect_later(checks.counted(event, 1, 1, **fault.span))
    claim("daemonset.not-evicted-on-node-failure").expect(pods[0].deletion, within=toleration, after=tainted)


def expect_replacement(lab: Lab, claim: Expectations, deployment: Workload, stateful_set: Workload) -> None:
    """Expect that the Deployment replaces its pod at once, and the StatefulSet not before its removal."""
    tainted = lab.target.taint(UNREACHABLE).added
    elsewhere = {"$not": {"$in": [None, lab.target]}}
    bound, running = deployment.pod_written(spec={"nodeName": elsewhere}), deployment.running_on(elsewhere)
    second = moments.created("pods", f"{stateful_set.name}-0", stateful_set.namespace)

    toleration, replacement = windows.toleration(lab.toleration_s), claim("eviction.replacement")
    claim("eviction.api-initiated").expect(deployment.deletion, within=toleration, after=tainted)
    replacement.expect(bound, within=5, after=deployment.deletion)
    replacement.expect(running, within=CONTAINER_START_S, after=bound)
    no_duplicate = claim("partition.statefulset-no-duplicate")
    no_duplicate.never(second, throughout=lab.quiet_s, after=stateful_set.deletion)


def expect_no_binding(lab: Lab, claim: Expectations, pod: Pod) -> None:
    avoided = claim("scheduling.unhealthy-node-avoided")
    avoided.expect(pod.unschedulable, within=5, after=pod.created)
    avoided.never(pod.bound, throughout=lab.quiet_s, after=pod.created)


def expect_no_deletion(
    lab: Lab, claim: Expectations, tolerant: Pod, daemons: Workload, fault: Injection
) -> None:
    tainted = lab.target.taint(UNREACHABLE).added
    longer = windows.absence_including_anchor(lab.toleration_s + 8.0)
    claim("eviction.unlimited-toleration").never(tolerant.deletion, throughout=longer, after=tainted)
    claim("daemonset.not-evicted-on-node-failure").never(daemons.deletion, throughout=longer, after=tainted)
    event = tolerant.event("TaintManagerEviction")
    claim("eviction.event").expect_none(event, **fault.span)


def expect_direct_deletions(lab: Lab, claim: Expectations, pods: Sequence[Pod], fault: Injection) -> None:
    """Expect one DELETE request for each pod, two of which have budgets, and no component's eviction."""
    names = {"$in": [pod.name for pod in pods]}
    pod_pattern = {"resource": "pods", "name": names, "namespace": pods[0].namespace}
    deletions = audit(verb="delete", user={"$not": f"system:node:{lab.target}"}, **pod_pattern)
    # Not of the user that drains.
    component = {"$prefix": "system:"}
    eviction_requests = audit(verb="create", subresource="eviction", user=component, **pod_pattern)
    lab.collect(deletions, eviction_requests)
    for requests, count in ((deletions, len(pods)), (eviction_requests, 0)):
        counted = checks.counted(requests.request, count, count, **fault.span)
        claim("eviction.api-initiated").expect_later(counted)
