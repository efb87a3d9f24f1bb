"""A machine that joins: the creator of its Node, and what the Node contains from the beginning."""

import uuid

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, Node, Pod, Workload, workload
from nodeproof.scenario.sources import audit

NEW, HOSTNAME = Node("joiner"), "kubernetes.io/hostname"
TAINTS = [
    {"key": "nodeproof.dev/new", "value": "yes", "effect": "NoSchedule"},
    {"key": "nodeproof.dev/young", "value": "yes", "effect": "PreferNoSchedule"},
]
TOLERATED = [{"key": "nodeproof.dev/new", "operator": "Exists"}]
"""Of the taint that is a preference no pod needs a toleration."""
PODS, RENEWAL_S, RENEWALS = 2, 5, 3
INITIAL_TAINT = {"spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}}
SOME = {"$not": {"$in": [None, "0"]}}
CAPACITY = {"status": {"capacity": {"cpu": SOME, "memory": SOME, "pods": str(PODS)}}}
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
REGISTERED, LEASED = NEW.created, moments.created("leases", NEW, "kube-node-lease")
UP_S, SCHEDULING_S, LEASE_S = 60.0, 10.0, 30.0
"""From a boot to a registered node, on an emulated machine."""
INITIAL_FIELD_S = 5.0
"""A field of one write is there at once or never: a shorter time would only test the host."""
OUT_OF_PODS = {"status": {"phase": "Failed", "reason": "OutOfpods"}}
REFUSED = {
    "a=1": "invalid taint spec",
    "a=1:Never": "unsupported taint effect",
    "a=1:NoSchedule,a=2:NoSchedule": "duplicated taints",
}


@needs(nodes=2, duration_s="12R + 30")
def test_kubelet_registers_node_with_its_settings_and_own_user(lab: Lab, claim: Expectations) -> None:
    # The controller remembers the last heartbeat of an earlier Node with the same name.
    manual_node = Node(f"by-hand-{uuid.uuid4().hex[:8]}")
    kubelet_joins = actions.join(
        NEW, registerWithTaints=TAINTS, maxPods=PODS, nodeLeaseDurationSeconds=4 * RENEWAL_S
    )
    waiting = workload("Deployment", nodeSelector={HOSTNAME: NEW}, tolerations=TOLERATED)
    own, others = (
        audit(verb="create", resource="nodes", name=NEW, user=user)
        for user in (f"system:node:{NEW}", {"$not": f"system:node:{NEW}"})
    )

    with lab.record():
        lab.run(waiting.make)
        # Requests within the slack of an end of the counted time may lie outside it.
        lab.wait_for(REGISTERED.never_after(moments.recording_began(), lab.quiet_s))
        lab.run(actions.create_node(manual_node, {HOSTNAME: manual_node}))
        lab.run(kubelet_joins)
        claim("registration.self-register-default").expect(REGISTERED, within=UP_S, after=moments.booted(NEW))
        claim("registration.self-register-default").expect_later(checks.default_of("registerNode"))
        expect_initial_node(claim)
        expect_waiting_pods_bound(claim, waiting)
        expect_ready(claim)
        expect_lease(claim)
        expect_manual_node(claim, manual_node)
        expect_preference(lab, claim)
        expect_max_pods(lab, claim)
        expect_daemon(lab, claim)
        expect_no_room(lab, claim)
        expect_same_capacity(lab, claim)
        renewals_s = (RENEWALS + 1) * 1.04 * RENEWAL_S
        lab.wait_for(NEW.removed.never_after(LEASED, renewals_s))
        lab.collect(own, others)

    pace = windows.formula("period", f"{RENEWAL_S}", f"{RENEWAL_S} - slack", f"1.04 * {RENEWAL_S} + slack")
    claim("heartbeat.lease-interval-configurable").expect_later(
        checks.spaced(NEW.lease_renewal, pace, at_least=RENEWALS - 1, after=LEASED, until=own.collected)
    )
    for source, low, high in ((own, 1, 9), (others, 0, 0)):
        requests = checks.counted(
            source.request, low, high, after=moments.recording_began(), until=source.collected
        )
        claim("registration.kubeconfig-credentials").expect_later(requests)


def expect_initial_node(claim: Expectations) -> None:
    at_once, startup = windows.up_to(INITIAL_FIELD_S), windows.up_to("S")
    tainted, not_ready, with_capacity = (
        moments.created("nodes", NEW, like=fields)
        for fields in ({"spec": {"taints": TAINTS}}, INITIAL_TAINT, CAPACITY)
    )
    claim("registration.with-taints").expect(tainted, within=at_once, after=REGISTERED)
    claim("registration.initial-not-ready-taint").expect(not_ready, within=at_once, after=REGISTERED)
    claim("capacity.reported-at-registration").expect(with_capacity, within=at_once, after=REGISTERED)
    for type_ in CONDITIONS:
        condition = {"type": type_, "status": {"$in": ["True", "False"]}}
        report = moments.written("nodes", {"metadata": {"name": NEW}, "status": {"conditions": [condition]}})
        claim("conditions.types-present").expect(report, within=startup, after=REGISTERED)


def expect_ready(claim: Expectations) -> None:
    posting = ("KubeletReady", "kubelet is posting ready status")
    healthy = moments.condition_reported(NEW, "Ready", "True", *posting)
    claim("conditions.ready-true-shape").expect_later(healthy, within=INITIAL_FIELD_S, after=NEW.ready)


def expect_same_capacity(lab: Lab, claim: Expectations) -> None:
    """Expect that the Node had from the beginning what its kubelet reports later."""
    later = lab.observe(probes.field_of(f"/api/v1/nodes/{NEW}", "status.capacity")).value
    capacity = {resource: later[resource] for resource in ("cpu", "memory", "pods")}
    claim("capacity.reported-at-registration").expect(
        moments.created("nodes", NEW, like={"status": {"capacity": capacity}}),
        within=INITIAL_FIELD_S,
        after=REGISTERED,
    )


def expect_waiting_pods_bound(claim: Expectations, waiting: Workload) -> None:
    initial_not_ready_taint = claim("registration.initial-not-ready-taint")
    schedulable = NEW.taint(NOT_READY, "NoSchedule").removed
    bound = waiting.pod_written(spec={"nodeName": NEW})
    initial_not_ready_taint.expect(schedulable, within=5, after=NEW.ready)
    initial_not_ready_taint.expect(bound, within=SCHEDULING_S, after=schedulable)


def expect_lease(claim: Expectations) -> None:
    """Expect a Lease whose duration is four renewals."""
    lease_window = windows.up_to(LEASE_S)
    duration = {"metadata": {"name": NEW}, "spec": {"leaseDurationSeconds": 4 * RENEWAL_S}}
    claim("heartbeat.lease-per-node").expect(LEASED, within=lease_window, after=REGISTERED)
    claim("heartbeat.lease-interval-configurable").expect(
        moments.written("leases", duration), within=lease_window, after=REGISTERED
    )


def expect_manual_node(claim: Expectations, node: Node) -> None:
    """Expect the initial taint of a Node without a kubelet to be removed at once.

    No kubelet reports that it is not ready, nor does the controller before the startup grace period ends.
    """
    creation, at_once = node.created, windows.up_to(INITIAL_FIELD_S)
    claim("registration.initial-not-ready-taint").expect(
        moments.created("nodes", node, like=INITIAL_TAINT), within=at_once, after=creation
    )
    claim("registration.initial-not-ready-taint").expect(
        node.taint(NOT_READY, "NoSchedule").removed, within=at_once, after=creation
    )
    claim("registration.initial-not-ready-taint").never(
        node.ready, throughout=INITIAL_FIELD_S, after=creation
    )


def expect_preference(lab: Lab, claim: Expectations) -> None:
    """Expect that a pod that may go to either of two nodes avoids the one whose taint is a preference.

    Its score counts three times, and each of those that can differ for this pod once.
    """
    either = {"key": HOSTNAME, "operator": "In", "values": [NEW, lab.target]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [either]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = lab.run(
        actions.pending_pod(only_on=lab.target, nodeSelector={}, affinity=affinity, tolerations=TOLERATED)
    )
    claim("taints.scheduler-avoids").expect(
        pod.became({"spec": {"nodeName": lab.target}}), within=SCHEDULING_S, after=pod.created
    )


def expect_max_pods(lab: Lab, claim: Expectations) -> None:
    """Expect room for a second pod beside the first, but not for a third, nor for one bound by hand."""
    second, third = (lab.run(actions.pending_pod(only_on=NEW, tolerations=TOLERATED)) for _number in range(2))
    scheduling_window, path = windows.up_to(SCHEDULING_S), f"/api/v1/namespaces/{third.namespace}/pods"
    claim("scheduling.max-pods").expect(second.bound, within=scheduling_window, after=second.created)
    spec = {"nodeName": NEW, "tolerations": TOLERATED, "containers": [{"name": "main", "image": "pause"}]}
    by_hand = f"{third.name}-by-hand"
    lab.run(actions.send_request("POST", path, {"metadata": {"name": by_hand}, "spec": spec}))
    claim("scheduling.max-pods").expect(third.unschedulable, within=scheduling_window, after=third.created)
    claim("scheduling.max-pods").expect(
        moments.became("pods", by_hand, OUT_OF_PODS, third.namespace),
        within=scheduling_window,
        after=moments.pod_created(third.namespace, by_hand),
    )
    claim("scheduling.max-pods").never(third.bound, throughout=lab.quiet_s, after=third.created)


def expect_daemon(lab: Lab, claim: Expectations) -> None:
    """Expect a DaemonSet's pod for the node, which has a PreferNoSchedule taint, although it has no room."""
    daemons = workload("DaemonSet", nodeSelector={HOSTNAME: NEW}, tolerations=TOLERATED)
    lab.run(daemons.make)
    claim("daemonset.created-despite-preference").expect(
        daemons.pod_written(), within=SCHEDULING_S, after=daemons.make.begun
    )


def expect_no_room(lab: Lab, claim: Expectations) -> None:
    """Expect a kubelet to reject pods that are bound by hand and request more than is allocatable."""
    allocatable = lab.observe(probes.resources_of(lab.target)).value["allocatable"]
    for resource, unit in (("cpu", "m"), ("memory", "")):
        pod = Pod("nodeproof", f"large-{uuid.uuid4().hex[:8]}", lab.target)
        resources = {"requests": {resource: f"{allocatable[resource] + 1}{unit}"}}
        container = {"name": "main", "image": "nodeproof.local/pause:1", "resources": resources}
        body = {"metadata": {"name": pod.name}, "spec": {"nodeName": pod.node, "containers": [container]}}
        lab.run(actions.send_request("POST", f"/api/v1/namespaces/{pod.namespace}/pods", body))
        rejected = pod.became({"status": {"phase": "Failed", "reason": f"OutOf{resource}"}})
        claim("scheduling.kubelet-rejects").expect(rejected, within=SCHEDULING_S, after=pod.created)


@needs(nodes=2)
def test_kubelet_rejects_malformed_register_with_taints(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        accepted = lab.run(
            actions.try_flags("kubelet", "--register-with-taints=a=1:NoSchedule,b=2:NoExecute")
        )
        claim("registration.with-taints-format").expect_value(accepted, {"status": 0})
        for taints, message in REFUSED.items():
            refused = lab.run(actions.try_flags("kubelet", f"--register-with-taints={taints}"))
            error = {"status": 1, "stderr": {"$contains": message}}
            claim("registration.with-taints-format").expect_value(refused, error)
