"""Edits of a Node, which stay whatever its kubelet registers."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows

KEY, VALUE = "edited", "yes"
LATE = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
CORES, PODS = "status.capacity.cpu", "status.capacity.pods"
UP_S = 60.0


@needs(nodes=2, faulted=1, duration_s="16R + 12")
def test_restarted_kubelet_keeps_taints_and_updates_max_pods(lab: Lab, claim: Expectations) -> None:
    """The kubelet starts with taints for an existing Node, and with taints for one that it may not create."""
    max_pods, not_reconciled = claim("capacity.max-pods"), claim("registration.with-taints-not-reconciled")
    node, absence_window = lab.target, windows.absence(lab.quiet_s)
    # Longer than the longest time after which a kubelet registers again once its Node is missing.
    unregistered_s = lab.configuration["U"] + 10.0
    late_taint = node.taint(LATE["key"], LATE["effect"]).added
    removal = node.removed
    creation = moments.first_after(node.created, after=removal)

    with lab.record():
        cores = int(lab.observe(probes.node_field(node, CORES)).value)
        per_core_limit, total_limit = (
            node.became({"status": {"capacity": {"pods": str(pods)}}}) for pods in (cores, cores + 1)
        )
        with_taints = faults.kubelet_settings(
            node, registerWithTaints=[LATE], podsPerCore=1, maxPods=cores + 2
        )
        with lab.inject(with_taints) as restart:
            max_pods.expect(per_core_limit, within=UP_S, after=restart.requested_at)
            # A slow machine may restart for longer than the absence lasts.
            not_reconciled.never(late_taint, throughout=absence_window, after=per_core_limit)
            not_reconciled.expect_none(late_taint, after=restart.requested_at, until=restart.healing_at)
        without_registration = faults.kubelet_settings(
            node, registerNode=False, registerWithTaints=[LATE], podsPerCore=2, maxPods=cores + 1
        )
        with lab.inject(without_registration) as restart:
            max_pods.expect(total_limit, within=UP_S, after=restart.requested_at)
            with lab.inject(faults.delete_node(node, lab.labels(node))) as deletion:
                claim("registration.with-taints-noop-without-register").never(
                    creation, throughout=unregistered_s, after=removal
                )
                claim("registration.with-taints-noop-without-register").expect_later(deletion.lasted)
            claim("registration.with-taints-noop-without-register").never(
                late_taint, throughout=absence_window, after=creation
            )


@needs(nodes=2, faulted=1, duration_s="14R")
def test_edits_of_labels_and_schedulability_stay(lab: Lab, claim: Expectations) -> None:
    """The kubelet restarts without registering its Node, and then with it, which reconciles the Node."""
    node = lab.target
    unlabelled = moments.became(
        "nodes", node, {"metadata": {"labels": {"$not": actions.labels_of(KEY, VALUE)}}}
    )
    absence_window = windows.absence(lab.quiet_s)

    with lab.record():
        lab.run(actions.label_node(node, KEY, VALUE))
        lab.run(actions.kubectl("cordon", node))
        with lab.inject(faults.kubelet_settings(node, registerNode=False)) as restart:
            for loss in (unlabelled, node.uncordoned):
                lab.wait_for(loss.never_after(restart.injected_at, absence_window))
        for loss in (unlabelled, node.uncordoned):
            none = checks.counted(loss, 0, 0, after=node.cordoned, until=restart.healed_at)
            claim("manual-node.edits-survive").expect_later(none)
            claim("manual-node.edits-survive").never(loss, throughout=absence_window, after=restart.healed_at)
