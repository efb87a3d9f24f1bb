"""A node that is not ready first and then silent, and the clock of the pods on it."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    UNREACHABLE,
    Stage,
    claims,
    condition_became,
    needs,
    partition,
    pod_deletion,
    ready_patched,
    run_pod,
    taint_added,
    tolerates,
    windows,
)

LEFT_S = 8.0
"""At least so long the other taint has to stand before the pod is due."""


@claims("eviction.timer-survives-taint-swap")
@needs(nodes=2, faulted=1, lasts="2G + 60")
def test_pods_of_a_node_that_falls_silent_while_not_ready_leave_by_the_first_taint(
    lab: Stage, judge: Judge
) -> None:
    """It tolerates both equally long: by a clock that began anew it would leave a grace period later."""
    node, known = lab.target, lab.configuration
    tolerated_s = int(known["G"] + 3 * known["P"] + 20)
    pod = lab.do(
        run_pod(on=node, tolerations=[tolerates(key, tolerated_s) for key in (NOT_READY, UNREACHABLE)])
    )
    not_ready, unknown = (condition_became(node, "Ready", status) for status in ("False", "Unknown"))
    first, second = (taint_added(node, key, "NoExecute") for key in (NOT_READY, UNREACHABLE))

    with lab.record(), lab.inject(ready_patched(node)):
        lab.wait_for(first.after(not_ready, windows.taint_pass()))
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(second.after(unknown, windows.monitor_pass()))
            lab.require(second, within_s=tolerated_s - LEFT_S, after=first)
            leaves = lab.wait_for(
                pod_deletion(pod.namespace, pod.name).after(first, windows.toleration(tolerated_s))
            )

    judge("eviction.timer-survives-taint-swap", leaves)
