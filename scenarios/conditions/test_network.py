"""A node whose runtime has no network for pods, and the moment that it has one again."""

from contextlib import ExitStack

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    Stage,
    Witness,
    became,
    bound_pod,
    claims,
    condition_became,
    condition_said,
    counted,
    event_reported,
    kubelet_settings,
    needs,
    other_file,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    run_witnesses,
    taint_added,
    windows,
)

PLUGINS, NONE = "/etc/cni/net.d/10-nodeproof.conflist", "{}\n"
LOOKED_AT_S, JITTER = 8, 1.04
"""The kubelet asks its runtime each 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go), and compares what it
reports each U, which is another once it was started anew; 3 s are for an emulated machine, from the order to
the file.
"""
AT_ONCE_S, SELDOM_S = 8, 100
"""A kubelet that has just started looks each 100 ms until it is ready, for two minutes at most
(fastStatusUpdateOnce in pkg/kubelet/kubelet.go), and else each time that it updates its status.
"""
SOON_S, PATIENT_S = 15, 300


@claims("conditions.ready-false-cni", "conditions.accepting-pods", "registration.first-ready-fast")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="90")
def test_a_node_without_a_network_for_pods_is_not_ready_until_the_moment_that_it_has_one(
    lab: Stage, judge: Judge
) -> None:
    """The network comes back under a kubelet that has just started, and that would report it in minutes."""
    node = lab.target
    says = "container runtime network not ready"
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", says)
    ready = condition_became(node, "Ready", "True")
    looked_at = windows.prompt(LOOKED_AT_S + JITTER * lab.configuration["U"])
    seldom = kubelet_settings(node, nodeStatusUpdateFrequency=f"{SELDOM_S}s")

    with lab.record(), ExitStack() as harm:
        without = harm.enter_context(lab.inject(other_file(node, PLUGINS, NONE)))
        falls = lab.wait_for(not_ready.after(without.ordered, looked_at))
        lab.wait_for(taint_added(node, NOT_READY, "NoSchedule").after(not_ready, windows.prompt(SOON_S)))
        waiting, direct = lab.do(pending_pod(only_on=node)), lab.do(bound_pod(to=node))
        asked, bound = (moment(waiting.namespace, waiting.name) for moment in (pod_created, pod_bound))
        taken = event_reported("NetworkNotReady", "Pod", direct.name, "network is not ready")
        given = pod_bound(direct.namespace, direct.name)
        tried = pod_unschedulable(waiting.namespace, waiting.name)
        passes_by = [
            lab.wait_for(tried.after(asked, windows.prompt(SOON_S))),
            lab.wait_for(taken.after(given, windows.prompt(SOON_S))),
            bound.never_after(asked, windows.absence(lab.quiet_s)),
        ]
        (host,) = lab.do(run_witnesses(Witness(host_network=True, tolerates_s=PATIENT_S), on=node))
        lab.wait_for(bound.never_after(asked, windows.absence(lab.quiet_s + lab.clear_s)))
        with lab.inject(seldom) as anew:
            harm.close()
            rises = lab.wait_for(ready.after(without.healing, windows.prompt(AT_ONCE_S)))
            binds = lab.wait_for(bound.after(without.healing, windows.prompt(SOON_S + windows.BIND_S)))

    runs = became("pods", host.name, {"status": {"phase": "Running"}}, host.namespace)
    stays = counted(ready, 0, 0, after=not_ready, until=without.healing)
    for check in (falls, stays, rises):
        judge("conditions.ready-false-cni", check)
    for check in (*passes_by, counted(runs, 1, 1, after=not_ready, until=anew.ordered), binds):
        judge("conditions.accepting-pods", check)
    for check in (stays, rises):
        judge("registration.first-ready-fast", check)
