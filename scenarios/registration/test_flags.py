"""Flags of a kubelet, and the fields of its Node that they set."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, ZONE_LABEL, Node, workload
from nodeproof.scenario.types import Moment

TYPE, OWN, NEW = "node.kubernetes.io/instance-type", "nodeproof.dev/own", "nodeproof.dev/new"
WELL_KNOWN = (
    HOSTNAME_LABEL,
    TYPE,
    ZONE_LABEL,
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
)
"""Labels of updateDefaultLabels in pkg/kubelet/kubelet_node_status.go."""
FIRST = {OWN: "first", TYPE: "small", "kubelet.kubernetes.io/own": "yes", "node.kubernetes.io/own": "yes"}
RECONCILED = dict.fromkeys(WELL_KNOWN, "second")
SECOND = {OWN: "second", NEW: "yes", **RECONCILED}
TAINTS: list[dict[str, Any]] = [
    {"key": "nodeproof.dev/refusing", "value": "one", "effect": "NoSchedule"},
    {"key": "nodeproof.dev/avoided", "value": "two", "effect": "PreferNoSchedule"},
    {"key": "nodeproof.dev/evicting", "value": None, "effect": "NoExecute"},
]
WITH_TAINTS = (
    "nodeproof.dev/refusing=one:NoSchedule,nodeproof.dev/avoided=two:PreferNoSchedule,"
    "nodeproof.dev/evicting:NoExecute"
)
LABELLED, SILENT, ALONE = Node("labelled"), Node("silent"), Node("alone")
SELECTED = "kept"
UP_S = 60.0
"""Time from a boot to a registered node (s), on an emulated machine."""
BINDING_S, RESTART_S = 10.0, 30.0
RETRY_S, GIVES_UP_S = 9.0, 15.0
"""Longer than the 7 s that a kubelet waits at most before it retries its registration, and shorter than the
17 s after which it looks for its Node for its CSINode: next it does so two minutes later, and is not Ready
before (initBackoff in pkg/volume/csi/csi_plugin.go).
"""
STANDALONE: Any = {
    "authentication": {"webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
HEALTHZ_PORT = 10248
UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}


def node_labels(labels: dict[str, str]) -> str:
    return f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}"


@needs(nodes=2, duration_s="50")
def test_restarted_kubelet_updates_only_well_known_labels(lab: Lab, claim: Expectations) -> None:
    first = moments.created("nodes", LABELLED, like={"metadata": {"labels": FIRST}})
    validation = claim("registration.node-labels-validation")

    with lab.record():
        lab.run(actions.join(LABELLED, flags=[node_labels(FIRST), f"--register-with-taints={WITH_TAINTS}"]))
        with_labels = claim("registration.node-labels")
        validation.expect_later(with_labels.expect(first, within=UP_S, after=moments.booted(LABELLED)))
        tainted = moments.created("nodes", LABELLED, like={"spec": {"taints": TAINTS}})
        claim("registration.with-taints-format").expect(tainted, within=UP_S, after=moments.booted(LABELLED))
        restart_after_a_label_is_removed(lab, claim)
        register_with_second_labels(lab, claim)
        for label in ("kubernetes.io/own", "own.k8s.io/own"):
            refusal = lab.run(actions.try_kubelet(LABELLED, f"--node-labels={label}=yes"))
            message = "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels"
            validation.expect_value(refusal, {"status": 1, "output": {"$contains": message}})


def restart_after_a_label_is_removed(lab: Lab, claim: Expectations) -> None:
    """Expect that a pod whose node selector no longer matches stays, also when its kubelet restarts."""
    label = actions.labels_of(SELECTED, "yes")
    tolerated = [{"key": taint["key"], "operator": "Exists"} for taint in TAINTS]
    pods = workload("Deployment", nodeSelector={HOSTNAME_LABEL: LABELLED, **label}, tolerations=tolerated)
    running = pods.running_on(LABELLED)
    stopped = pods.pod_written(spec={"nodeName": LABELLED}, status={"phase": {"$not": "Running"}})
    reconciled = LABELLED.became({"metadata": {"labels": RECONCILED}})
    own_changed = LABELLED.became({"metadata": {"labels": {"$not": {OWN: FIRST[OWN], NEW: None}}}})
    unlabel = actions.unlabel_node(LABELLED, SELECTED)
    restart = actions.restart_joined(LABELLED, node_labels(SECOND))

    lab.run(actions.label_node(LABELLED, SELECTED, "yes"))
    lab.run(pods.make)
    lab.wait_for(running.after(pods.make.begun, UP_S))
    lab.wait_for(stopped.never_after(running, lab.clear_s))
    lab.run(unlabel)
    running_pods = claim("registration.label-change-running-pods")
    restarted = claim("registration.label-change-kubelet-restart")
    defaults = claim("registration.default-label-keys-reconciled")
    ignored = claim("registration.node-labels-restart-ignored")

    running_pods.never(stopped, throughout=lab.quiet_s, after=unlabel.ended)
    lab.run(restart)
    defaults.expect(reconciled, within=RESTART_S, after=restart.begun)
    restarted.never(stopped, throughout=RESTART_S, after=restart.begun)
    ignored.never(own_changed, throughout=lab.quiet_s, after=reconciled)


def register_with_second_labels(lab: Lab, claim: Expectations) -> None:
    """Expect that a kubelet whose Node was deleted sets all its labels when it registers again."""
    restart, second = actions.restart_joined(LABELLED), {"metadata": {"labels": SECOND}}
    again = moments.first_after(moments.created("nodes", LABELLED, like=second), after=restart.begun)

    lab.run(actions.kubectl("delete", "node", LABELLED))
    lab.run(restart)
    registration = claim("registration.node-labels").expect(again, within=RESTART_S, after=restart.begun)
    claim("registration.node-labels-restart-ignored").expect_later(registration)


@needs(nodes=2, duration_s="45")
def test_kubelet_without_register_node_reports_for_manual_node(lab: Lab, claim: Expectations) -> None:
    """One kubelet may not register its Node; another one has no kubeconfig."""
    absent_from_begin_s = lab.clear_s + RETRY_S
    silent, alone = (name.created for name in (SILENT, ALONE))
    silent_joins = actions.join(SILENT, registerNode=False)
    alone_joins = actions.join(ALONE, flags=["--kubeconfig="], healthzPort=HEALTHZ_PORT, **STANDALONE)
    no_registration = claim("registration.register-node-false")
    no_kubeconfig = claim("registration.kubeconfig-required")

    with lab.record():
        # A Node created within the slack of a boot would be left open, so the absence begins before it.
        lab.wait_for(silent.never_after(moments.recording_began(), lab.clear_s))
        lab.run(alone_joins)
        lab.run(silent_joins)
        no_registration.expect_later(silent.never_after(moments.recording_began(), absent_from_begin_s))
        no_registration.never(silent, throughout=RETRY_S, after=silent_joins.ended)
        use_a_node_that_was_created_by_hand(lab, claim, silent_joins.ended)
        no_kubeconfig.expect_later(alone.never_after(moments.recording_began(), absent_from_begin_s))
        no_kubeconfig.never(alone, throughout=RETRY_S, after=alone_joins.ended)
        no_kubeconfig.expect_value(lab.observe(probes.healthz(ALONE, HEALTHZ_PORT)), "ok")


def use_a_node_that_was_created_by_hand(lab: Lab, claim: Expectations, start: Moment) -> None:
    """Expect that the kubelet makes the Node Ready, and runs a pod that the scheduler binds to it."""
    healthy = claim("manual-node.becomes-healthy")
    lab.run(actions.create_node(SILENT, {HOSTNAME_LABEL: SILENT, ZONE_LABEL: lab.nodes()[0].zone}))
    lab.wait_for(SILENT.created.after(start, UP_S))
    joined, created = lab.find(start), lab.find(SILENT.created)
    if joined is None or created is None or created.t - joined.t > GIVES_UP_S:
        # A kubelet that was too long without its Node tries again two minutes later: too late to wait for.
        lab.run(actions.restart_joined(SILENT))
    healthy.expect(SILENT.ready, within=UP_S, after=SILENT.created)
    pod = lab.run(actions.pending_pod(only_on=SILENT))
    healthy.expect(pod.bound, within=BINDING_S, after=pod.created)
    healthy.expect(pod.running, within=RESTART_S, after=pod.bound)


@needs(nodes=2, duration_s="50")
def test_node_of_external_cloud_stays_uninitialized_without_controller(lab: Lab, claim: Expectations) -> None:
    """The lab runs no controller for this cloud."""
    node = Node("cloud-node")
    node_created = moments.created("nodes", node, like={"spec": {"taints": [UNINITIALIZED]}})
    initialized = node.taint(UNINITIALIZED["key"], UNINITIALIZED["effect"]).removed
    taint, flag = claim("registration.cloud-uninitialized-taint"), claim("registration.cloud-provider-flag")

    with lab.record():
        lab.run(actions.join(node, flags=["--cloud-provider=external"]))
        flag.expect_later(taint.expect(node_created, within=UP_S, after=moments.booted(node)))
        lab.wait_for(node.ready.after(node_created, UP_S))
        pod = lab.run(actions.pending_pod(only_on=node))
        taint.expect(pod.unschedulable, within=BINDING_S, after=pod.created)
        taint.never(pod.bound, throughout=lab.quiet_s, after=pod.created)
        taint.never(initialized, throughout=lab.quiet_s, after=node.ready)
        provider_id = lab.observe(probes.node_field(node, "spec.providerID"))
        flag.expect_value(provider_id, None)
        external = lab.run(actions.try_kubelet(node, "--cloud-provider=external"))
        flag.expect_value(external, {"status": None})
        # A cloud whose provider was part of Kubernetes.
        in_tree = lab.run(actions.try_kubelet(node, "--cloud-provider=aws"))
        message = "was specified, but built-in cloud providers are disabled"
        flag.expect_value(in_tree, {"status": 1, "output": {"$contains": message}})
