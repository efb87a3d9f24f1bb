"""Pods of an unreachable node that a user deletes by force, and their containers."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Pod,
    Stage,
    Witness,
    ask,
    claims,
    condition_became,
    kubectl,
    lives_on,
    made,
    needs,
    next_of,
    partition,
    pod_gone,
    preferring,
    run_witnesses,
    shows,
    sigterm,
    tolerates,
    windows,
    workload,
    written,
)

PATIENT_S = 300
"""How long the witness bears an unreachable node: nobody else is to delete it."""
RECONNECTION_S = 45
"""The longest that a kubelet takes to give up a dead connection: 30 s and 15 s of HTTP/2, by default."""
STARTS_S, AT_ONCE_S, REPLACED_S, CLEARED_S = 60.0, 3.0, 10.0, RECONNECTION_S + 15.0
LIVES_S = 15.0
"""Long enough to tell life from silence (SILENCE_LIMIT_S in nodeproof.checks.looks)."""


def by_force(pod: Pod) -> tuple[str, ...]:
    return ("delete", "pod", pod.name, f"--namespace={pod.namespace}", "--force", "--grace-period=0")


@claims("partition.user-force-delete")
@needs(nodes=2, faulted=1, features=("real-pods",), lasts="G + 3P + 100")
def test_a_pod_that_is_deleted_by_force_frees_its_name_while_its_container_runs(
    lab: Stage, judge: Judge
) -> None:
    """A StatefulSet makes the next of that name at once; a witness tells how long the first one lives."""
    node = lab.target
    ordinal = workload("StatefulSet", **preferring(node), tolerations=[tolerates(UNREACHABLE)])
    first = Pod(ordinal.namespace, f"{ordinal.name}-0", node)
    running = written("pods", {**ordinal.pods, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
    elsewhere = {"spec": {"nodeName": {"$not": {"$in": [None, node]}}}, "status": {"phase": "Running"}}
    unknown = condition_became(node, "Ready", "Unknown")
    again = next_of(made("pods", first.name, first.namespace), after=pod_gone(first.namespace, first.name))

    with lab.record():
        (pod,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
        lab.do(ordinal.make)
        lab.wait_for(running.after(ordinal.make.begun, windows.prompt(STARTS_S)))
        gone = pod_gone(pod.namespace, pod.name)
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            deletes = [kubectl(*by_force(each)) for each in (pod, first)]
            for delete in deletes:
                lab.do(delete)
            answer = lab.do(ask("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))
            moved = written("pods", {**ordinal.pods, **elsewhere})
            freed = [
                gone.after(deletes[0].begun, windows.prompt(AT_ONCE_S)),
                again.after(deletes[1].begun, windows.prompt(REPLACED_S)),
                moved.after(again, windows.prompt(STARTS_S)),
            ]
            for check in freed:
                lab.wait_for(check)
            anew = next_of(made("pods", pod.name, pod.namespace), after=gone)
            lab.wait_for(anew.never_after(gone, windows.absence(LIVES_S)))
        ready = condition_became(node, "Ready", "True")
        lab.wait_for(ready.after(cut.healing, windows.recovery()))
        # Nothing in the API tells when the kubelet has ended what is its no longer.
        lab.wait_for(anew.never_after(cut.healing, windows.absence(CLEARED_S + lab.clear_s)))
        lab.hear(pod)

    ends = sigterm(pod.name).after(cut.healing, windows.prompt(CLEARED_S))
    for check in (shows(answer, {"status": 404}), *freed, lives_on(pod.name, gone, cut.healing), ends):
        judge("partition.user-force-delete", check)
