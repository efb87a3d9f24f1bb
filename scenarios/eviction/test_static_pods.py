"""Static pods on a node that the control plane cannot reach."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, UNREACHABLE, mirror_pod

CONTAINER_START_S = 60.0
LONGER = windows.formula("negative", "T + 5", "-2slack", "T + 5")
"""Longer than a pod without tolerations of its own stays."""


@needs(nodes=2, faulted=1, duration_s="G + T + 4P + 45")
def test_static_pod_of_unreachable_node_is_not_evicted(lab: Lab, claim: Expectations) -> None:
    """Another pod of that node leaves."""
    node, static = lab.target, mirror_pod(lab.target)
    with_static_pods = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)

    with lab.record(), lab.inject(faults.static_pod(static)), lab.inject(with_static_pods) as restart:
        lab.wait_for_required(static.running, within_s=CONTAINER_START_S, after=restart.requested_at)
        pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
        with lab.inject(faults.partition(node)) as fault:
            # On a slow machine, the restart of the kubelet may bring an earlier condition and taint.
            unknown = moments.first_after(node.unknown, after=fault.injected_at)
            unreachable = moments.first_after(node.taint(UNREACHABLE).added, after=fault.injected_at)
            lab.wait_for(unknown.after(fault.injected_at, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            stays, toleration = claim("eviction.static-pods-stay"), windows.toleration(lab.toleration_s)
            stays.expect(pod.deletion, within=toleration, after=unreachable)
            stays.never(static.deletion, throughout=LONGER, after=unreachable)
