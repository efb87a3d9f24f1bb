"""Edits of a Node, which stay whatever its kubelet registers."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes

KEY, VALUE = "edited", "yes"
LATE = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
UP_S = 60.0
LEASE_S = 12
"""nodeLeaseDurationSeconds, of no profile: the kubelet renews a Lease that has another one."""


@needs(nodes=2, faulted=1, duration_s="16R + 12")
def test_restarted_kubelet_keeps_taints_and_updates_max_pods(lab: Lab, claim: Expectations) -> None:
    """The kubelet starts with taints for an existing Node, and with taints for one that it may not create."""
    max_pods, not_reconciled = claim("capacity.max-pods"), claim("registration.with-taints-not-reconciled")
    node, no_registration = lab.target, claim("registration.with-taints-noop-without-register")
    # Longer than the longest time after which a kubelet registers again once its Node is missing.
    unregistered_s = lab.configuration["U"] + 10.0
    late_taint = node.taint(LATE["key"], LATE["effect"]).added
    new_duration = {"metadata": {"name": node}, "spec": {"leaseDurationSeconds": LEASE_S}}
    lease_duration = moments.written("leases", new_duration)
    creation = moments.first_after(node.created, after=node.removed)

    with lab.record():
        cores = int(lab.observe(probes.node_field(node, "status.capacity.cpu")).value)
        per_core_limit, total_limit = (node.became(with_pods(pods)) for pods in (cores, cores + 1))
        limits: Any = {"podsPerCore": 1, "maxPods": cores + 2, "nodeLeaseDurationSeconds": LEASE_S}
        with_taints = faults.kubelet_settings(node, registerWithTaints=[LATE], **limits)
        with lab.inject(with_taints) as restart:
            max_pods.expect(per_core_limit, within=UP_S, after=restart.requested_at)
            configurable = claim("heartbeat.lease-interval-configurable")
            configurable.expect(lease_duration, within=UP_S, after=restart.requested_at)
            # A slow machine may restart for longer than the absence lasts.
            not_reconciled.never(late_taint, throughout=lab.quiet_s, after=per_core_limit)
            not_reconciled.expect_none(late_taint, after=restart.requested_at, until=restart.healing_at)
        without_registration = faults.kubelet_settings(
            node, registerNode=False, registerWithTaints=[LATE], podsPerCore=2, maxPods=cores + 1
        )
        with lab.inject(without_registration) as restart:
            max_pods.expect(total_limit, within=UP_S, after=restart.requested_at)
            with lab.inject(faults.delete_node(node, lab.labels(node))) as deletion:
                no_registration.never(creation, throughout=unregistered_s, after=node.removed)
                no_registration.expect_later(deletion.lasted)
            no_registration.never(late_taint, throughout=lab.quiet_s, after=creation)


def with_pods(number: int) -> dict[str, Any]:
    """Return a pattern of a Node that may have so many pods, all of which are allocatable."""
    pods = {"pods": str(number)}
    return {"status": {"capacity": pods, "allocatable": pods}}


@needs(nodes=2, faulted=1, duration_s="14R")
def test_edits_of_labels_and_schedulability_stay(lab: Lab, claim: Expectations) -> None:
    """The kubelet restarts without registering its Node, and then with it, which reconciles the Node."""
    node, survive = lab.target, claim("manual-node.edits-survive")
    unlabelled = node.became({"metadata": {"labels": {"$not": actions.labels_of(KEY, VALUE)}}})

    with lab.record():
        lab.run(actions.label_node(node, KEY, VALUE))
        lab.run(actions.kubectl("cordon", node))
        with lab.inject(faults.kubelet_settings(node, registerNode=False)) as restart:
            for loss in (unlabelled, node.uncordoned):
                lab.wait_for(loss.never_after(restart.injected_at, lab.quiet_s))
        for loss in (unlabelled, node.uncordoned):
            survive.expect_none(loss, after=node.cordoned, until=restart.healed_at)
            survive.never(loss, throughout=lab.quiet_s, after=restart.healed_at)
