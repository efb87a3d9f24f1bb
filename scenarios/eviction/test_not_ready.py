"""A node that is not ready though it reports."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    Stage,
    claims,
    condition_became,
    needs,
    ready_patched,
    run_pod,
    taint_added,
    taint_removed,
    windows,
    written,
)


@claims("taints.not-ready-noexecute", "conditions.pods-not-marked-on-kubelet-false")
@needs(nodes=2, faulted=1, lasts="10")
def test_a_node_that_is_not_ready_is_tainted_and_its_pods_are_not_marked(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node))
    not_ready, ready_again = (condition_became(node, "Ready", status) for status in ("False", "True"))
    unready = {"type": "Ready", "status": "False"}
    marked = written(
        "pods",
        {"metadata": {"namespace": pod.namespace, "name": pod.name}, "status": {"conditions": [unready]}},
    )
    a_pass = windows.absence(2 * lab.configuration["P"] + 1.0)

    with lab.record():
        with lab.inject(ready_patched(node)) as cut:
            tainted = lab.wait_for(
                taint_added(node, NOT_READY, "NoExecute").after(not_ready, windows.taint_pass())
            )
            stays_ready = lab.wait_for(marked.never_after(not_ready, a_pass))
        lab.wait_for(ready_again.after(cut.began, windows.recovery()))
        lab.wait_for(taint_removed(node, NOT_READY, "NoExecute").after(ready_again, windows.monitor_pass()))

    judge("taints.not-ready-noexecute", tainted)
    judge("conditions.pods-not-marked-on-kubelet-false", stays_ready)
