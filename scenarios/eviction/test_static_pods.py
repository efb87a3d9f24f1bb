"""Static pods on a node that the control plane cannot reach."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    STATIC_PODS,
    UNREACHABLE,
    Stage,
    became,
    claims,
    condition_became,
    kubelet_settings,
    mirror_pod,
    needs,
    next_of,
    partition,
    pod_deletion,
    run_pod,
    static_pod,
    taint_added,
    windows,
)

STARTS_S = 60.0
LONGER = windows.formula("negative", "T + 5", "-2slack", "T + 5")
"""Than a pod stays that nobody gave a toleration."""


@claims("eviction.static-pods-stay")
@needs(nodes=2, faulted=1, lasts="G + T + 4P + 45")
def test_a_static_pod_stays_on_an_unreachable_node(lab: Stage, judge: Judge) -> None:
    """Another pod of that node leaves."""
    node, static = lab.target, mirror_pod(lab.target)
    runs = became("pods", static.name, {"status": {"phase": "Running"}}, static.namespace)
    with_static_pods = kubelet_settings(node, staticPodPath=STATIC_PODS)

    with lab.record(), lab.inject(static_pod(static)), lab.inject(with_static_pods) as restart:
        lab.wait_for(runs.after(restart.ordered, windows.prompt(STARTS_S)))
        lab.require(runs, within_s=STARTS_S, after=restart.ordered)
        pod = lab.do(run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
        with lab.inject(partition(node)) as cut:
            # Not the ones that a restart with other settings brings on a slow machine.
            unknown = next_of(condition_became(node, "Ready", "Unknown"), after=cut.began)
            unreachable = next_of(taint_added(node, UNREACHABLE, "NoExecute"), after=cut.began)
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            checks = [
                pod_deletion(pod.namespace, pod.name).after(
                    unreachable, windows.toleration(lab.toleration_s)
                ),
                pod_deletion(static.namespace, static.name).never_after(unreachable, LONGER),
            ]
            for check in checks:
                lab.wait_for(check)

    for check in checks:
        judge("eviction.static-pods-stay", check)
