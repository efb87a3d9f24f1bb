"""Partitions of one direction, and one that is over before anybody minds."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    claims,
    condition_became,
    kubectl,
    needs,
    partition,
    pod_deletion,
    pod_gone,
    run_pod,
    shows,
    windows,
)

ENDS_S = 10.0


@claims("monitoring.one-way-to-apiserver", "monitoring.one-way-from-apiserver", "monitoring.short-blip")
@needs(nodes=3, faulted=2, lasts="3G + 10")
def test_a_node_is_lost_when_its_own_requests_do_not_arrive_and_only_then(lab: Stage, judge: Judge) -> None:
    """One cannot speak, one cannot be spoken to; that was cut off whole before, for half a grace period."""
    mute, deaf = lab.targets
    pod = lab.do(run_pod(on=deaf))
    half, grace_s = lab.configuration["G"] / 2, lab.configuration["G"]
    lost, deaf_lost = (condition_became(node, "Ready", "Unknown") for node in (mute, deaf))
    # Whether it may ask that, the node asks the API server, and remembers it for five minutes.
    health = ask("GET", f"/api/v1/nodes/{mute}/proxy/healthz")
    logs = kubectl("logs", pod.name, f"--namespace={pod.namespace}", "--request-timeout=5s", may_fail=True)

    with lab.record():
        lab.do(health)
        with lab.inject(partition(deaf)) as blip:
            lab.wait_for(deaf_lost.never_after(blip.began, windows.absence(half)))
        after_a_blip = lab.wait_for(
            deaf_lost.never_after(blip.began, windows.absence(grace_s + 3 * lab.configuration["P"]))
        )
        with (
            lab.inject(partition(mute, "node-to-api")) as cut,
            lab.inject(partition(deaf, "api-to-node")) as ear,
        ):
            told = lab.wait_for(lost.after(cut.began, windows.detection_from_fault()))
            reached = lab.do(health)
            unheard = lab.do(logs)
            lab.do(ask("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))
            deleted = pod_deletion(pod.namespace, pod.name)
            gone = lab.wait_for(pod_gone(pod.namespace, pod.name).after(deleted, windows.prompt(ENDS_S)))
            stays = lab.wait_for(deaf_lost.never_after(ear.began, windows.absence(grace_s + half)))

    for check in (told, shows(reached, {"status": 200, "body": "ok"})):
        judge("monitoring.one-way-to-apiserver", check)
    for check in (stays, gone, shows(unheard, {"status": {"$not": 0}})):
        judge("monitoring.one-way-from-apiserver", check)
    judge("monitoring.short-blip", after_a_blip)
