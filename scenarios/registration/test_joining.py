"""A machine that joins: the creator of its Node, and what the Node contains from the beginning."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, NOT_READY, Node, Pod, Workload, unique, workload
from nodeproof.scenario.sources import audit

NEW = Node("joiner")
TAINTS = [
    {"key": "nodeproof.dev/new", "value": "yes", "effect": "NoSchedule"},
    {"key": "nodeproof.dev/young", "value": "yes", "effect": "PreferNoSchedule"},
]
TOLERATED = [{"key": "nodeproof.dev/new", "operator": "Exists"}]
"""Of the taint that is a preference no pod needs a toleration."""
PODS, RENEWAL_S, RENEWALS = 2, 5, 3
INITIAL_TAINT = {"spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}}
REGISTERED, LEASED = NEW.created, moments.created("leases", NEW, "kube-node-lease")
SCHEDULING_S, LEASE_S, UP_S = 10.0, 30.0, 60.0
INITIAL_FIELD_S = 5.0
"""A field of one write is there at once or never: a shorter time would only test the host."""


@needs(nodes=2, duration_s="12R + 35")
def test_kubelet_registers_node_with_its_settings_and_own_user(lab: Lab, claim: Expectations) -> None:
    # The controller remembers the last heartbeat of an earlier Node with the same name.
    manual_node = Node(unique("by-hand"))
    settings: Any = {"maxPods": PODS, "nodeLeaseDurationSeconds": 4 * RENEWAL_S}
    kubelet_joins = actions.join(NEW, registerWithTaints=TAINTS, **settings)
    waiting = workload("Deployment", nodeSelector={HOSTNAME_LABEL: NEW}, tolerations=TOLERATED)
    user = f"system:node:{NEW}"
    own = audit(verb="create", resource="nodes", name=NEW, user=user)
    others = audit(verb="create", resource="nodes", name=NEW, user={"$not": user})
    registration = claim("registration.self-register-default")

    with lab.record():
        lab.run(waiting.make)
        # Requests within the slack of an end of the counted time may lie outside it.
        lab.wait_for(REGISTERED.never_after(moments.recording_began(), lab.quiet_s))
        lab.run(actions.create_node(manual_node, {HOSTNAME_LABEL: manual_node}))
        lab.run(kubelet_joins)
        # An emulated machine takes long to boot.
        registration.expect(REGISTERED, within=UP_S, after=moments.booted(NEW))
        registration.expect_later(checks.default_of("registerNode"))
        expect_initial_node(claim)
        expect_waiting_pods_bound(claim, waiting)
        healthy = ("KubeletReady", "kubelet is posting ready status")
        report = moments.condition_reported(NEW, "Ready", "True", *healthy)
        claim("conditions.ready-true-shape").expect_later(report, within=INITIAL_FIELD_S, after=NEW.ready)
        expect_lease(claim)
        expect_manual_node(claim, manual_node)
        expect_preference(lab, claim)
        expect_max_pods(lab, claim)
        expect_daemon(lab, claim)
        expect_no_room(lab, claim)
        expect_same_capacity(lab, claim)
        lab.wait_for(NEW.removed.never_after(LEASED, (RENEWALS + 1) * 1.04 * RENEWAL_S))
        lab.collect(own, others)

    pace = windows.formula("period", f"{RENEWAL_S}", f"{RENEWAL_S} - slack", f"1.04 * {RENEWAL_S} + slack")
    renewals = checks.spaced(
        NEW.lease_renewal, pace, at_least=RENEWALS - 1, after=LEASED, until=own.collected
    )
    claim("heartbeat.lease-interval-configurable").expect_later(renewals)
    for source, low, high in ((own, 1, 9), (others, 0, 0)):
        recorded = {"after": moments.recording_began(), "until": source.collected}
        requests = checks.counted(source.request, low, high, **recorded)
        claim("registration.kubeconfig-credentials").expect_later(requests)


def expect_initial_node(claim: Expectations) -> None:
    some = {"$not": {"$in": [None, "0"]}}
    capacity = {"status": {"capacity": {"cpu": some, "memory": some, "pods": str(PODS)}}}
    for expectation, fields in (
        (claim("registration.with-taints"), {"spec": {"taints": TAINTS}}),
        (claim("registration.initial-not-ready-taint"), INITIAL_TAINT),
        (claim("capacity.reported-at-registration"), capacity),
    ):
        initial = moments.created("nodes", NEW, like=fields)
        expectation.expect(initial, within=INITIAL_FIELD_S, after=REGISTERED)
    for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        condition = {"type": type_, "status": {"$in": ["True", "False"]}}
        report = moments.written("nodes", {"metadata": {"name": NEW}, "status": {"conditions": [condition]}})
        claim("conditions.types-present").expect(report, within="S", after=REGISTERED)


def expect_same_capacity(lab: Lab, claim: Expectations) -> None:
    """Expect that the Node had from the beginning what its kubelet reports later."""
    later = lab.observe(probes.node_field(NEW, "status.capacity")).value
    capacity = {resource: later[resource] for resource in ("cpu", "memory", "pods")}
    initial = moments.created("nodes", NEW, like={"status": {"capacity": capacity}})
    claim("capacity.reported-at-registration").expect(initial, within=INITIAL_FIELD_S, after=REGISTERED)


def expect_waiting_pods_bound(claim: Expectations, waiting: Workload) -> None:
    initial_taint = claim("registration.initial-not-ready-taint")
    schedulable = NEW.taint(NOT_READY, "NoSchedule").removed
    bound = waiting.pod_written(spec={"nodeName": NEW})
    initial_taint.expect(schedulable, within=5, after=NEW.ready)
    initial_taint.expect(bound, within=SCHEDULING_S, after=schedulable)


def expect_lease(claim: Expectations) -> None:
    """Expect a Lease whose duration is four renewals."""
    duration = {"metadata": {"name": NEW}, "spec": {"leaseDurationSeconds": 4 * RENEWAL_S}}
    per_node, configurable = claim("heartbeat.lease-per-node"), claim("heartbeat.lease-interval-configurable")
    per_node.expect(LEASED, within=LEASE_S, after=REGISTERED)
    configurable.expect(moments.written("leases", duration), within=LEASE_S, after=REGISTERED)


def expect_manual_node(claim: Expectations, node: Node) -> None:
    """Expect the initial taint of a Node without a kubelet to be removed at once.

    No kubelet reports that it is not ready, nor does the controller before the startup grace period ends.
    """
    initial_taint = claim("registration.initial-not-ready-taint")
    tainted = moments.created("nodes", node, like=INITIAL_TAINT)
    for moment in (tainted, node.taint(NOT_READY, "NoSchedule").removed):
        initial_taint.expect(moment, within=INITIAL_FIELD_S, after=node.created)
    initial_taint.never(node.ready, throughout=INITIAL_FIELD_S, after=node.created)


def expect_preference(lab: Lab, claim: Expectations) -> None:
    """Expect that a pod that may go to either of two nodes avoids the one whose taint is a preference.

    Its score counts three times, and each of those that can differ for this pod once.
    """
    either = {"key": HOSTNAME_LABEL, "operator": "In", "values": [NEW, lab.target]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [either]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    fields: Any = {"nodeSelector": {}, "affinity": affinity}
    pod = lab.run(actions.pending_pod(only_on=lab.target, tolerations=TOLERATED, **fields))
    bound = pod.became({"spec": {"nodeName": lab.target}})
    claim("taints.scheduler-avoids").expect(bound, within=SCHEDULING_S, after=pod.created)


def expect_max_pods(lab: Lab, claim: Expectations) -> None:
    """Expect room for a second pod beside the first, but not for a third, nor for one bound by hand.

    A pod takes the room of the second one once that has ended, which remains.
    """
    second, third = (lab.run(actions.pending_pod(only_on=NEW, tolerations=TOLERATED)) for _number in range(2))
    max_pods, by_hand = claim("scheduling.max-pods"), Pod(third.namespace, f"{third.name}-by-hand", NEW)
    max_pods.expect(second.bound, within=SCHEDULING_S, after=second.created)
    lab.run(actions.create_pod(by_hand, tolerations=TOLERATED))
    max_pods.expect(third.unschedulable, within=SCHEDULING_S, after=third.created)
    rejected = by_hand.became({"status": {"phase": "Failed", "reason": "OutOfpods"}})
    max_pods.expect(rejected, within=SCHEDULING_S, after=by_hand.created)
    max_pods.never(third.bound, throughout=lab.quiet_s, after=third.created)
    # The third one might be bound while the kubelet still ends the second, and be rejected.
    lab.run(actions.send_request("DELETE", third.path))
    deadline = actions.send_request("PATCH", second.path, {"spec": {"activeDeadlineSeconds": 1}})
    lab.run(deadline)
    lab.wait_for(second.failed.after(deadline.begun, UP_S))
    fourth = lab.run(actions.pending_pod(only_on=NEW, tolerations=TOLERATED))
    max_pods.expect(fourth.running, within=UP_S, after=fourth.created)


def expect_daemon(lab: Lab, claim: Expectations) -> None:
    """Expect a DaemonSet's pod for the node, which has a PreferNoSchedule taint, although it has no room."""
    daemons = workload("DaemonSet", nodeSelector={HOSTNAME_LABEL: NEW}, tolerations=TOLERATED)
    created = claim("daemonset.created-despite-preference")
    lab.run(daemons.make)
    created.expect(daemons.pod_written(), within=SCHEDULING_S, after=daemons.make.begun)


def expect_no_room(lab: Lab, claim: Expectations) -> None:
    """Expect a kubelet to reject pods that are bound by hand and request more than is allocatable."""
    allocatable = lab.observe(probes.resources_of(lab.target)).value["allocatable"]
    for resource, unit in (("cpu", "m"), ("memory", "")):
        pod = Pod("nodeproof", unique("large"), lab.target)
        resources = {"requests": {resource: f"{allocatable[resource] + 1}{unit}"}}
        container = {"name": "main", "image": "nodeproof.local/pause:1", "resources": resources}
        lab.run(actions.create_pod(pod, containers=[container]))
        rejected = pod.became({"status": {"phase": "Failed", "reason": f"OutOf{resource}"}})
        claim("scheduling.kubelet-rejects").expect(rejected, within=SCHEDULING_S, after=pod.created)


@needs(nodes=2)
def test_kubelet_rejects_malformed_register_with_taints(lab: Lab, claim: Expectations) -> None:
    taints_format, valid = claim("registration.with-taints-format"), "a=1:NoSchedule,b=2:NoExecute"
    with lab.record():
        accepted = lab.run(actions.try_flags("kubelet", f"--register-with-taints={valid}"))
        taints_format.expect_value(accepted, {"status": 0})
        for taints, message in (
            ("a=1", "invalid taint spec"),
            ("a=1:Never", "unsupported taint effect"),
            ("a=1:NoSchedule,a=2:NoSchedule", "duplicated taints"),
        ):
            refused = lab.run(actions.try_flags("kubelet", f"--register-with-taints={taints}"))
            taints_format.expect_value(refused, {"status": 1, "stderr": {"$contains": message}})
