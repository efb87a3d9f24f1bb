"""Partitions of one direction, and one that is over before anybody minds."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    claims,
    condition_became,
    needs,
    partition,
    pod_deletion,
    pod_gone,
    run_pod,
    shows,
    windows,
)

ENDS_S = 10.0
NO_ANSWER = [0, 500, 502, 503, 504]
"""What is said of a kubelet that is not reached; 0 is nothing at all within the time-out."""


@claims("monitoring.one-way-to-apiserver", "monitoring.one-way-from-apiserver", "monitoring.short-blip")
@needs(nodes=3, faulted=2, lasts="3G + 10")
def test_a_node_is_lost_when_its_own_requests_do_not_arrive_and_only_then(lab: Stage, judge: Judge) -> None:
    """One cannot speak, one cannot be spoken to; that was cut off whole before, for half a grace period."""
    mute, deaf = lab.targets
    pod = lab.do(run_pod(on=deaf))
    half, grace_s = lab.configuration["G"] / 2, lab.configuration["G"]
    lost, deaf_lost = (condition_became(node, "Ready", "Unknown") for node in (mute, deaf))
    # Whether it may ask that, the node asks the API server, and remembers it for five minutes.
    health = ask("GET", f"/api/v1/nodes/{mute}/proxy/healthz", may_fail=True)
    heard = ask("GET", f"/api/v1/nodes/{deaf}/proxy/healthz", may_fail=True)

    with lab.record():
        answers = [lab.do(health), lab.do(heard)]
        with lab.inject(partition(deaf)) as blip:
            lab.wait_for(deaf_lost.never_after(blip.began, windows.absence(half)))
        after_a_blip = lab.wait_for(
            deaf_lost.never_after(blip.began, windows.absence(grace_s + 3 * lab.configuration["P"]))
        )
        with (
            lab.inject(partition(mute, "node-to-api")) as cut,
            lab.inject(partition(deaf, "api-to-node")) as ear,
        ):
            unheard = lab.do(heard)
            told = lab.wait_for(lost.after(cut.began, windows.detection_from_fault()))
            answers.append(lab.do(health))
            lab.do(ask("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))
            deleted = pod_deletion(pod.namespace, pod.name)
            gone = lab.wait_for(pod_gone(pod.namespace, pod.name).after(deleted, windows.prompt(ENDS_S)))
            stays = lab.wait_for(deaf_lost.never_after(ear.began, windows.absence(grace_s + half)))
        answers.append(lab.do(heard))

    before, heard_before, reached, heard_again = (
        shows(answer, {"status": 200, "body": "ok"}) for answer in answers
    )
    for check in (before, told, reached):
        judge("monitoring.one-way-to-apiserver", check)
    silent = shows(unheard, {"status": {"$in": NO_ANSWER}})
    for check in (heard_before, silent, heard_again, stays, gone):
        judge("monitoring.one-way-from-apiserver", check)
    judge("monitoring.short-blip", after_a_blip)
