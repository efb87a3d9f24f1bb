"""Nodes whose kubelet is stopped while everything else runs."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, UNREACHABLE, Witness, mirror_pod, tolerates

CONTAINER_START_S = 120.0
LONGER = windows.formula("negative", "T + 5", "-2slack", "T + 5")
"""Longer than a pod without tolerations of its own stays."""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="G + T + 90")
def test_node_with_stopped_kubelet_loses_pods_without_toleration(lab: Lab, claim: Expectations) -> None:
    """All containers continue to run, also those of deleted pods, as no kubelet ends them."""
    node, static = lab.target, mirror_pod(lab.target)
    daemons = actions.workload("DaemonSet")
    deployment = actions.workload("Deployment", **actions.preferring(node))
    static_pods_stay, all_pods = claim("eviction.static-pods-stay"), claim("eviction.all-pods")
    kubelet_stop = claim("heartbeat.kubelet-stop")
    with_static_pods = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)

    with lab.record(), lab.inject(faults.static_pod(static)), lab.inject(with_static_pods) as restart:
        lab.wait_for_required(static.running, within_s=CONTAINER_START_S, after=restart.requested_at)
        for pods in (daemons, deployment):
            lab.start(pods, on=node, within_s=CONTAINER_START_S)
            lab.require(pods.running_on(node), within_s=CONTAINER_START_S, after=pods.make.begun)
        tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
        (witness,) = lab.run(actions.run_witnesses(Witness(toleration_s=3600), on=node))
        with lab.inject(faults.unit_down(node)) as fault:
            # On a slow machine, the restart of the kubelet may bring an earlier condition and taint.
            unknown = moments.first_after(node.unknown, after=fault.injected_at)
            unreachable = moments.first_after(node.taint(UNREACHABLE).added, after=fault.injected_at)
            lab.wait_for(unknown.after(fault.injected_at, windows.detection_from_fault()))
            eviction = windows.default_toleration()
            evicted = static_pods_stay.expect(deployment.deletion, within=eviction, after=unreachable)
            all_pods.expect_later(evicted)
            stays = static_pods_stay.never(static.deletion, throughout=LONGER, after=unreachable)
            all_pods.expect_later(stays)
            for moment in (tolerant.deletion, daemons.deletion):
                all_pods.never(moment, throughout=LONGER, after=unreachable)
        lab.collect(witness)
        lab.wait_until_ready(node, fault)

    kubelet_stop.expect_none(node.lease_renewal, **fault.span)
    kubelet_stop.expect_later(unknown, within=windows.detection(), after=node.last_heartbeat(before=unknown))
    kubelet_stop.expect_later(checks.stays_alive(witness.name, fault.injected_at, fault.healing_at))
