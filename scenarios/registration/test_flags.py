"""What a kubelet is told by its flags, and what of it reaches its Node."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    ZONE_LABEL,
    Stage,
    ask,
    became,
    booted,
    claims,
    condition_became,
    field_of,
    healthz,
    join,
    kubectl,
    label_node,
    labels_of,
    made,
    make_node,
    needs,
    next_of,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    recording_began,
    shows,
    start_again,
    taint_removed,
    try_kubelet,
    windows,
    workload,
    written,
)

HOSTNAME, TYPE, OWN = "kubernetes.io/hostname", "node.kubernetes.io/instance-type", "nodeproof.dev/own"
FIRST = {OWN: "first", TYPE: "small", "kubelet.kubernetes.io/own": "yes", "node.kubernetes.io/own": "yes"}
SECOND = {OWN: "second", TYPE: "large"}
RESERVED = ("kubernetes.io/own", "own.k8s.io/own")
KEPT, UP_S, BOUND_S = "kept", 60.0, 10.0
"""From a boot to a registered node, on an emulated machine."""
ANEW_S = 30.0
NEVER_S = 15.0
"""Longer than the 7 s that a kubelet waits at most until it tries to register once more."""
BY_ITSELF: Any = {"authentication": {"webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"}}
HEALTHZ_PORT = 10248
BUILT_IN_ONCE = "aws"
"""A cloud whose provider was part of Kubernetes."""
UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}


def labels(told: dict[str, str]) -> str:
    return f"--node-labels={','.join(f'{key}={value}' for key, value in told.items())}"


@claims(
    "registration.node-labels",
    "registration.node-labels-restart-ignored",
    "registration.default-label-keys-reconciled",
    "registration.node-labels-validation",
    "registration.label-change-running-pods",
)
@needs(nodes=2, lasts="50")
def test_a_kubelet_that_starts_anew_tells_its_node_none_but_well_known_labels(
    lab: Stage, judge: Judge
) -> None:
    """A pod that asked for a label stays when that goes, until its kubelet starts anew."""
    name = "labelled"
    path, quiet = f"/api/v1/nodes/{name}", windows.absence(lab.quiet_s)
    pods = workload("Deployment", nodeSelector={HOSTNAME: name, **labels_of(KEPT, "yes")})
    there = {**pods.pods, "spec": {"nodeName": name}}
    born = made("nodes", name, like={"metadata": {"labels": FIRST}})
    unlabel = ask("PATCH", path, {"metadata": {"labels": dict.fromkeys(labels_of(KEPT, "yes"))}})
    anew, afresh = start_again(name, labels(SECOND)), start_again(name)
    large = became("nodes", name, {"metadata": {"labels": {TYPE: SECOND[TYPE]}}})
    other = became("nodes", name, {"metadata": {"labels": {"$not": {OWN: FIRST[OWN]}}}})
    stopped = written("pods", {**there, "status": {"phase": {"$not": "Running"}}})
    ended = written("pods", {**there, "status": {"phase": {"$in": ["Failed", "Succeeded"]}}})
    refused = written("events", {"reason": "NodeAffinity", "source": {"host": name}})

    with lab.record():
        lab.do(join(name, flags=[labels(FIRST)]))
        with_them = lab.wait_for(born.after(booted(name), windows.prompt(UP_S)))
        lab.do(label_node(name, KEPT, "yes"))
        lab.do(pods.make)
        runs = written("pods", {**there, "status": {"phase": "Running"}})
        lab.wait_for(runs.after(pods.make.begun, windows.prompt(UP_S)))
        lab.wait_for(stopped.never_after(runs, windows.absence(lab.clear_s)))
        lab.do(unlabel)
        lab.wait_for(stopped.never_after(unlabel.ended, windows.absence(lab.quiet_s + lab.clear_s)))
        lab.do(anew)
        reconciled = lab.wait_for(large.after(anew.begun, windows.prompt(ANEW_S)))
        rejected = [lab.wait_for(each.after(anew.begun, windows.prompt(ANEW_S))) for each in (refused, ended)]
        lab.wait_for(other.never_after(large, windows.absence(lab.quiet_s + lab.clear_s)))
        lab.do(kubectl("delete", "node", name))
        lab.do(afresh)
        again = next_of(made("nodes", name, like={"metadata": {"labels": SECOND}}), after=afresh.begun)
        with_others = lab.wait_for(again.after(afresh.begun, windows.prompt(ANEW_S)))
        refusals = [lab.do(try_kubelet(name, f"--node-labels={label}=yes")) for label in RESERVED]

    for check in (with_them, with_others):
        judge("registration.node-labels", check)
    for check in (other.never_after(large, quiet), with_others):
        judge("registration.node-labels-restart-ignored", check)
    judge("registration.default-label-keys-reconciled", reconciled)
    for check in (stopped.never_after(unlabel.ended, quiet), *rejected):
        judge("registration.label-change-running-pods", check)
    judge("registration.node-labels-validation", with_them)
    said = "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels"
    for seen in refusals:
        judge("registration.node-labels-validation", shows(seen, {"status": 1, "said": {"$contains": said}}))


@claims("registration.register-node-false", "registration.kubeconfig-required", "manual-node.becomes-healthy")
@needs(nodes=2, lasts="45")
def test_a_kubelet_that_makes_no_node_reports_for_one_that_somebody_makes(lab: Stage, judge: Judge) -> None:
    """One may not register, and one was told of no cluster at all."""
    silent, alone = "silent", "alone"
    born, ready = made("nodes", silent), condition_became(silent, "Ready", "True")
    never, before = windows.absence(NEVER_S), windows.absence(lab.clear_s + NEVER_S)

    with lab.record():
        # What came within the slack of a boot would be left open: it is looked for from before.
        lab.wait_for(born.never_after(recording_began(), windows.absence(lab.clear_s)))
        lab.do(join(silent, registerNode=False))
        lab.do(join(alone, flags=["--kubeconfig="], healthzPort=HEALTHZ_PORT, **BY_ITSELF))
        for name in (silent, alone):
            lab.wait_for(
                made("nodes", name).never_after(booted(name), windows.absence(NEVER_S + lab.clear_s))
            )
        lives = lab.look(healthz(alone, HEALTHZ_PORT))
        lab.do(make_node(silent, {HOSTNAME: silent, ZONE_LABEL: lab.nodes()[0].zone}))
        # One that found no Node for 18 s tries its CSINode again two minutes later, not Ready before.
        lab.do(start_again(silent))
        healthy = lab.wait_for(ready.after(born, windows.prompt(UP_S)))
        pod = lab.do(pending_pod(only_on=silent))
        asked, bound = pod_created(pod.namespace, pod.name), pod_bound(pod.namespace, pod.name)
        placed = lab.wait_for(bound.after(asked, windows.prompt(BOUND_S)))
        running = became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)
        runs = lab.wait_for(running.after(bound, windows.prompt(ANEW_S)))

    for since, long in ((recording_began(), before), (booted(silent), never)):
        judge("registration.register-node-false", born.never_after(since, long))
    for since, long in ((recording_began(), before), (booted(alone), never)):
        judge("registration.kubeconfig-required", made("nodes", alone).never_after(since, long))
    judge("registration.kubeconfig-required", shows(lives, "ok"))
    for check in (healthy, placed, runs):
        judge("manual-node.becomes-healthy", check)


@claims("registration.cloud-uninitialized-taint", "registration.cloud-provider-flag")
@needs(nodes=2, lasts="50")
def test_a_node_of_an_external_cloud_waits_for_it(lab: Stage, judge: Judge) -> None:
    """Nobody here is that cloud."""
    name = "clouded"
    born = made("nodes", name, like={"spec": {"taints": [UNINITIALIZED]}})
    initialized = taint_removed(name, UNINITIALIZED["key"], UNINITIALIZED["effect"])

    with lab.record():
        lab.do(join(name, flags=["--cloud-provider=external"]))
        with_it = lab.wait_for(born.after(booted(name), windows.prompt(UP_S)))
        ready = condition_became(name, "Ready", "True")
        lab.wait_for(ready.after(born, windows.prompt(UP_S)))
        pod = lab.do(pending_pod(only_on=name))
        asked, bound = pod_created(pod.namespace, pod.name), pod_bound(pod.namespace, pod.name)
        waits = lab.wait_for(pod_unschedulable(pod.namespace, pod.name).after(asked, windows.prompt(BOUND_S)))
        kept = [
            lab.wait_for(never.never_after(since, windows.absence(lab.quiet_s)))
            for never, since in ((bound, asked), (initialized, ready))
        ]
        provider_id = lab.look(field_of(f"/api/v1/nodes/{name}", "spec.providerID"))
        external, built_in = (
            lab.do(try_kubelet(name, f"--cloud-provider={cloud}")) for cloud in ("external", BUILT_IN_ONCE)
        )

    for check in (with_it, waits, *kept):
        judge("registration.cloud-uninitialized-taint", check)
    said = "was specified, but built-in cloud providers are disabled"
    for check in (
        with_it,
        shows(provider_id, None),
        shows(external, {"status": None}),
        shows(built_in, {"status": 1, "said": {"$contains": said}}),
    ):
        judge("registration.cloud-provider-flag", check)
