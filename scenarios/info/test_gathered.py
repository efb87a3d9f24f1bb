"""What a kubelet tells of its machine, and that it puts right what somebody else wrote."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    ask,
    became,
    changed,
    claims,
    condition_became,
    field_of,
    made,
    needs,
    removed,
    same_as,
    shows,
    windows,
)

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
IN_LEASES = "kube-node-lease"
WRONG = "nodeproof-was-here"
GATHERED = ("kernelVersion", "osImage", "kubeletVersion", "containerRuntimeVersion")


@claims(
    "info.gathered-by-kubelet",
    "heartbeat.status-on-change",
    "heartbeat.lease-recreated",
    "conditions.times",
    "conditions.node-phase",
)
@needs(nodes=2, lasts="G + 10R")
def test_a_kubelet_puts_right_what_somebody_else_wrote(lab: Stage, judge: Judge) -> None:
    node, known = lab.target, lab.configuration
    path = f"{NODES}/{node}"
    info = field_of(path, "status.nodeInfo")
    wrong, otherwise = (
        {"status": {"nodeInfo": dict.fromkeys(GATHERED, it)}} for it in (WRONG, {"$not": WRONG})
    )
    altered, restored = (became("nodes", node, pattern) for pattern in (wrong, otherwise))
    turns = changed("nodes", node, "status.conditions[].lastTransitionTime")
    gone = removed("leases", node, IN_LEASES)
    owner = {"kind": "Node", "name": node}
    own = {"metadata": {"ownerReferences": [owner]}, "spec": {"holderIdentity": node}}
    anew = made("leases", node, IN_LEASES, like=own)
    renewal = windows.formula("within", "1.04R", "-slack", "1.04R + 1 + slack")

    with lab.record():
        before = lab.look(info)
        told = lab.do(ask("PATCH", f"{path}/status", wrong))
        puts_right = lab.wait_for(restored.after(altered, windows.status_update()))
        beat = became("nodes", node, {"status": {"conditions": [_ready_later_than(told.value["body"])]}})
        reports = lab.wait_for(beat.after(altered, windows.status_update()))
        after = lab.look(info)
        steady = lab.wait_for(turns.never_after(altered, windows.absence(lab.quiet_s)))
        lab.do(ask("DELETE", f"{LEASES}/{node}"))
        makes_anew = lab.wait_for(anew.after(gone, renewal))
        unknown = condition_became(node, "Ready", "Unknown")
        # A Lease that is made anew and not renewed keeps its node for a grace period more.
        and_renews = windows.absence(1 + 2 * known["R"] + known["G"] + 3 * known["P"])
        lives = lab.wait_for(unknown.never_after(gone, and_renews))
        phase = lab.look(field_of(path, "status.phase"))

    judge("info.gathered-by-kubelet", puts_right)
    judge("info.gathered-by-kubelet", same_as(after, before))
    judge("heartbeat.status-on-change", reports)
    for check in (makes_anew, lives):
        judge("heartbeat.lease-recreated", check)
    for check in (reports, steady):
        judge("conditions.times", check)
    judge("conditions.node-phase", shows(phase, {"$present": False}))


def _ready_later_than(node: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, object]:
    """A Ready that was reported at another time than this Node's."""
    (ready,) = (each for each in node["status"]["conditions"] if each["type"] == "Ready")
    return {"type": "Ready", "lastHeartbeatTime": {"$not": ready["lastHeartbeatTime"]}}
