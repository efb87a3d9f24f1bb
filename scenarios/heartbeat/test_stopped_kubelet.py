"""A node whose kubelet is stopped, and nothing else of it."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    STATIC_PODS,
    UNREACHABLE,
    Moment,
    Stage,
    Witness,
    Workload,
    became,
    changed,
    claims,
    condition_became,
    counted,
    kubelet_settings,
    last_heartbeat,
    lives_on,
    mirror_pod,
    needs,
    next_of,
    pod_deletion,
    preferring,
    run_pod,
    run_witnesses,
    static_pod,
    taint_added,
    tolerates,
    unit_down,
    windows,
    workload,
    written,
)

LEASES = "kube-node-lease"
STARTS_S, PATIENT_S = 120.0, 3600
RUNS = {"status": {"phase": "Running"}}


def running(pods: Workload, node: str) -> Moment:
    return written("pods", {**pods.pods, "spec": {"nodeName": node}, **RUNS})


def leaving(pods: Workload) -> Moment:
    return written("pods", {"metadata": {**pods.pods["metadata"], "deletionTimestamp": PRESENT}})


@claims("heartbeat.kubelet-stop", "eviction.static-pods-stay", "eviction.all-pods")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="G + T + 90")
def test_a_node_whose_kubelet_is_stopped_loses_the_pods_that_do_not_tolerate_that(
    lab: Stage, judge: Judge
) -> None:
    """It runs all of them on, those that are deleted, too: there is no kubelet to end them."""
    node, static = lab.target, mirror_pod(lab.target)
    daemons, replaced = workload("DaemonSet"), workload("Deployment", **preferring(node))
    unknown, ready = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))
    renewed = changed("leases", node, "spec.renewTime", LEASES)
    longer = windows.formula("negative", "T + 5", "-2slack", "T + 5")
    with_static_pods = kubelet_settings(node, staticPodPath=STATIC_PODS)

    with lab.record(), lab.inject(static_pod(static)), lab.inject(with_static_pods) as restart:
        mirrored = became("pods", static.name, RUNS, static.namespace)
        lab.wait_for(mirrored.after(restart.ordered, windows.prompt(STARTS_S)))
        lab.require(mirrored, within_s=STARTS_S, after=restart.ordered)
        for each in (daemons, replaced):
            lab.do(each.make)
            lab.wait_for(running(each, node).after(each.make.begun, windows.prompt(STARTS_S)))
            lab.require(running(each, node), within_s=STARTS_S, after=each.make.begun)
        tolerant = lab.do(run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
        (witness,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
        with lab.inject(unit_down(node)) as stop:
            # Not the one that a restart with other settings brings on a slow machine.
            tainted = next_of(taint_added(node, UNREACHABLE, "NoExecute"), after=stop.began)
            lost = next_of(unknown, after=stop.began)
            lab.wait_for(lost.after(stop.began, windows.detection_from_fault()))
            leaves = lab.wait_for(leaving(replaced).after(tainted, windows.default_toleration()))
            mirror, tolerated, daemon = (
                lab.wait_for(moment.never_after(tainted, longer))
                for moment in (
                    pod_deletion(static.namespace, static.name),
                    pod_deletion(tolerant.namespace, tolerant.name),
                    leaving(daemons),
                )
            )
        lab.hear(witness)
        lab.wait_for(ready.after(stop.healing, windows.recovery()))

    for check in (
        counted(renewed, 0, 0, after=stop.began, until=stop.healing),
        lost.after(last_heartbeat(node, lost), windows.detection()),
        lives_on(witness.name, stop.began, stop.healing),
    ):
        judge("heartbeat.kubelet-stop", check)
    for check in (leaves, mirror):
        judge("eviction.static-pods-stay", check)
    for check in (leaves, mirror, tolerated, daemon):
        judge("eviction.all-pods", check)
