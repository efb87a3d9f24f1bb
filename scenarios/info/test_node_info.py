"""The kubelet's report of its machine, and its correction of what others wrote."""

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
IN_LEASES = "kube-node-lease"
WRONG = "nodeproof-was-here"
GATHERED = ("kernelVersion", "osImage", "kubeletVersion", "containerRuntimeVersion")


@needs(nodes=2, duration_s="G + 10R")
def test_kubelet_corrects_edited_status_and_recreates_its_lease(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    path = f"{NODES}/{node}"

    with lab.record():
        expect_correction(lab, claim, path)
        expect_lease_recreated(lab, claim)
        phase = lab.observe(probes.field_of(path, "status.phase"))
        claim("conditions.node-phase").expect_later(checks.shows(phase, {"$present": False}))


def expect_correction(lab: Lab, claim: Expectations, path: str) -> None:
    node, info = lab.target, probes.field_of(path, "status.nodeInfo")
    wrong, right = (
        {"status": {"nodeInfo": dict.fromkeys(GATHERED, pattern)}} for pattern in (WRONG, {"$not": WRONG})
    )
    altered, restored = (node.became(pattern) for pattern in (wrong, right))
    transition = moments.changed("nodes", node, "status.conditions[].lastTransitionTime")

    before = lab.observe(info)
    response = lab.run(actions.send_request("PATCH", f"{path}/status", wrong))
    claim("info.gathered-by-kubelet").expect(restored, within=windows.status_update(), after=altered)
    later_ready = {"status": {"conditions": [_ready_later_than(response.value["body"])]}}
    report = claim("heartbeat.status-on-change").expect(
        node.became(later_ready), within=windows.status_update(), after=altered
    )
    claim("conditions.times").expect_later(report)
    claim("info.gathered-by-kubelet").expect_later(checks.same_as(lab.observe(info), before))
    claim("conditions.times").never(transition, throughout=windows.absence(lab.quiet_s), after=altered)


def expect_lease_recreated(lab: Lab, claim: Expectations) -> None:
    node, configuration = lab.target, lab.configuration
    removal = moments.removed("leases", node, IN_LEASES)
    owner = {"kind": "Node", "name": node}
    own = {"metadata": {"ownerReferences": [owner]}, "spec": {"holderIdentity": node}}
    renewal = windows.formula("within", "1.04R", "-slack", "1.04R + 1 + slack")
    # A Lease that is created again and not renewed keeps its node Ready for another grace period.
    until_unknown_s = 1 + 2 * configuration["R"] + configuration["G"] + 3 * configuration["P"]

    lab.run(actions.send_request("DELETE", f"{LEASES}/{node}"))
    claim("heartbeat.lease-recreated").expect(
        moments.created("leases", node, IN_LEASES, like=own), within=renewal, after=removal
    )
    claim("heartbeat.lease-recreated").never(
        node.unknown, throughout=windows.absence(until_unknown_s), after=removal
    )


def _ready_later_than(node: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, object]:
    """Return a pattern of the condition Ready with another report time than in this Node."""
    (ready,) = (condition for condition in node["status"]["conditions"] if condition["type"] == "Ready")
    return {"type": "Ready", "lastHeartbeatTime": {"$not": ready["lastHeartbeatTime"]}}
