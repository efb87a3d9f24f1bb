"""Eviction at the toleration that every pod gets."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    claims,
    condition_became,
    default_of,
    last_heartbeat,
    needs,
    partition,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)


@claims("eviction.default-tolerations-injected")
@needs(nodes=2)
def test_tolerations_that_an_api_server_without_flags_gives(lab: Stage, judge: Judge) -> None:
    with lab.record():
        pass
    for constant in ("default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds"):
        judge("eviction.default-tolerations-injected", default_of(constant))


@claims("monitoring.detection-time", "eviction.after-five-minutes-unreachable")
@needs(nodes=2, faulted=1, profile="documented", lasts="G + T + 20")
def test_pods_without_a_toleration_of_their_own_leave_after_five_minutes(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node))
    unknown = condition_became(node, "Ready", "Unknown")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")

    with lab.record(), lab.inject(partition(node)) as cut:
        lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
        lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
        evicted = lab.wait_for(
            pod_deletion(pod.namespace, pod.name).after(unreachable, windows.default_toleration())
        )
    judge("monitoring.detection-time", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    judge("eviction.after-five-minutes-unreachable", default_of("default-unreachable-toleration-seconds"))
    judge("eviction.after-five-minutes-unreachable", evicted)
