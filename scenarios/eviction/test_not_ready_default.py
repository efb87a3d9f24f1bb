"""Eviction at the toleration that every pod gets, from a node that reports and is not ready."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    Stage,
    claims,
    condition_became,
    default_of,
    needs,
    pod_deletion,
    ready_patched,
    run_pod,
    taint_added,
    windows,
)


@claims("eviction.after-five-minutes-not-ready")
@needs(nodes=2, faulted=1, profile="documented", lasts="T + 25")
def test_pods_without_a_toleration_of_their_own_leave_a_node_that_is_not_ready_after_five_minutes(
    lab: Stage, judge: Judge
) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node))
    not_ready, unknown = (condition_became(node, "Ready", status) for status in ("False", "Unknown"))
    tainted = taint_added(node, NOT_READY, "NoExecute")
    deletion = pod_deletion(pod.namespace, pod.name)

    with lab.record(), lab.inject(ready_patched(node)):
        lab.wait_for(tainted.after(not_ready, windows.taint_pass()))
        evicted = lab.wait_for(deletion.after(tainted, windows.default_toleration()))
        lives = lab.wait_for(unknown.never_after(tainted, windows.formula("negative", "T", "0", "T")))

    for check in (default_of("default-not-ready-toleration-seconds"), evicted, lives):
        judge("eviction.after-five-minutes-not-ready", check)
