"""The kubelet's report of its machine, and its correction of what others wrote."""

import uuid

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import PRESENT
from nodeproof.scenario.types import Moment

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
IN_LEASES = "kube-node-lease"
WRONG = "nodeproof-was-here"
GATHERED = (
    "kernelVersion",
    "osImage",
    "operatingSystem",
    "architecture",
    "systemUUID",
    "kubeletVersion",
    "containerRuntimeVersion",
)
LABELS = ("kubernetes.io/os", "kubernetes.io/arch")
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""Those that the kubelet reports."""
ABSENT = {"$present": False}


@needs(nodes=2, duration_s="G + 10R")
def test_kubelet_corrects_edited_status_and_recreates_its_lease(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    path = f"{NODES}/{node}"

    with lab.record():
        expect_correction(lab, claim, path)
        expect_lease_recreated(lab, claim)
        phase = lab.observe(probes.field_of(path, "status.phase"))
        claim("conditions.node-phase").expect_value(phase, ABSENT)


def expect_correction(lab: Lab, claim: Expectations, path: str) -> None:
    node, info = lab.target, probes.field_of(path, "status.nodeInfo")
    wrong, right = (
        {
            "metadata": {"labels": dict.fromkeys(LABELS, pattern)},
            "status": {"nodeInfo": dict.fromkeys(GATHERED, pattern)},
        }
        for pattern in (WRONG, {"$not": WRONG})
    )
    altered, restored = (node.became(pattern) for pattern in (wrong, right))
    transition = moments.changed("nodes", node, "status.conditions[].lastTransitionTime")
    # No kubelet knows it, and none is left from a scenario that broke off.
    resource = f"nodeproof.dev/added-{uuid.uuid4().hex[:8]}"
    with_resource = {**wrong, "status": {**wrong["status"], "capacity": {resource: "3"}}}

    before = lab.observe(info)
    response = lab.run(actions.send_request("PATCH", f"{path}/status", with_resource))
    claim("info.gathered-by-kubelet").expect(restored, within=windows.status_update(), after=altered)
    later = {"status": {"conditions": _conditions_later_than(response.value["body"])}}
    report = claim("heartbeat.status-on-change").expect(
        node.became(later), within=windows.status_update(), after=altered
    )
    claim("conditions.times").expect_later(report)
    claim("info.gathered-by-kubelet").expect_later(checks.same_as(lab.observe(info), before))
    claim("conditions.times").never(transition, throughout=lab.quiet_s, after=altered)
    expect_added(resource, lab, claim, path, after=altered)


def expect_added(resource: str, lab: Lab, claim: Expectations, path: str, after: Moment) -> None:
    """Expect that an added resource is allocatable, and no longer once it is removed."""
    node, resources = lab.target, claim("capacity.added-resources")
    without, neither = (
        {"status": {field: {resource: ABSENT} for field in fields}}
        for fields in (("capacity",), ("capacity", "allocatable"))
    )
    both = {"status": {field: {resource: "3"} for field in ("capacity", "allocatable")}}
    removal = {"status": {"capacity": {resource: None}}}

    resources.expect(node.became(both), within=windows.status_update(), after=after)
    kept = lab.observe(probes.field_of(path, "status"))
    resources.expect_value(kept, both["status"])
    lab.run(actions.send_request("PATCH", f"{path}/status", removal))
    resources.expect_later(node.became(neither), within=windows.status_update(), after=node.became(without))


def expect_lease_recreated(lab: Lab, claim: Expectations) -> None:
    node, configuration = lab.target, lab.configuration
    removal = moments.removed("leases", node, IN_LEASES)
    owner = {"kind": "Node", "name": node}
    spec = {"holderIdentity": node, "leaseDurationSeconds": PRESENT, "renewTime": PRESENT}
    own = {"metadata": {"ownerReferences": [owner]}, "spec": spec}
    renewal = windows.formula("within", "1.04R", "-slack", "1.04R + 1 + slack")
    # A Lease that is created again and not renewed keeps its node Ready for another grace period.
    until_unknown_s = 1 + 2 * configuration["R"] + configuration["G"] + 3 * configuration["P"]

    lab.run(actions.send_request("DELETE", f"{LEASES}/{node}"))
    claim("heartbeat.lease-recreated").expect(
        moments.created("leases", node, IN_LEASES, like=own), within=renewal, after=removal
    )
    claim("heartbeat.lease-recreated").never(node.unknown, throughout=until_unknown_s, after=removal)


def _conditions_later_than(node: dict[str, dict[str, list[dict[str, str]]]]) -> list[dict[str, object]]:
    """Return a pattern of the kubelet's conditions with other report times than in this Node."""
    return [
        {"type": condition["type"], "lastHeartbeatTime": {"$not": condition["lastHeartbeatTime"]}}
        for condition in node["status"]["conditions"]
        if condition["type"] in CONDITIONS
    ]
