"""The kubelet's report of its machine, and its correction of what others wrote."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import PRESENT, unique
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
WRONG_SIZE = {"cpu": "977", "memory": "977Gi"}
OTHER_SIZE = {name: {"$not": size} for name, size in WRONG_SIZE.items()}
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
    wrong = gathered(WRONG)
    altered, restored = node.became(wrong), node.became(gathered({"$not": WRONG}))
    transition = moments.changed("nodes", node, "status.conditions[].lastTransitionTime")
    # No kubelet knows it, and none is left from a scenario that broke off.
    resource = f"nodeproof.dev/{unique('added')}"
    sizes = {"capacity": {resource: "3", **WRONG_SIZE}, "allocatable": WRONG_SIZE}
    with_resource = {**wrong, "status": {**wrong["status"], **sizes}}
    sizes_restored = node.became({"status": dict.fromkeys(("capacity", "allocatable"), OTHER_SIZE)})

    before = lab.observe(info)
    response = lab.run(actions.send_request("PATCH", f"{path}/status", with_resource))
    by_kubelet, times = claim("info.gathered-by-kubelet"), claim("conditions.times")
    for moment in (restored, sizes_restored):
        by_kubelet.expect(moment, within=windows.status_update(), after=altered)
    later = node.became({"status": {"conditions": _conditions_later_than(response.value["body"])}})
    on_change = claim("heartbeat.status-on-change")
    times.expect_later(on_change.expect(later, within=windows.status_update(), after=altered))
    by_kubelet.expect_later(checks.same_as(lab.observe(info), before))
    times.never(transition, throughout=lab.quiet_s, after=altered)
    expect_added(resource, lab, claim, path, after=altered)


def gathered(pattern: Any) -> dict[str, Any]:
    """Return a pattern of a Node each of whose facts about its machine matches a pattern."""
    labels = dict.fromkeys(("kubernetes.io/os", "kubernetes.io/arch"), pattern)
    return {"metadata": {"labels": labels}, "status": {"nodeInfo": dict.fromkeys(GATHERED, pattern)}}


def expect_added(resource: str, lab: Lab, claim: Expectations, path: str, after: Moment) -> None:
    """Expect that an added resource is allocatable, and no longer once it is removed."""
    node, resources = lab.target, claim("capacity.added-resources")
    added, absent = {resource: "3"}, {resource: ABSENT}
    both = {"status": {"capacity": added, "allocatable": added}}
    without, neither = {"capacity": absent}, {"capacity": absent, "allocatable": absent}

    resources.expect(node.became(both), within=windows.status_update(), after=after)
    kept = lab.observe(probes.field_of(path, "status"))
    resources.expect_value(kept, both["status"])
    removal = {"status": {"capacity": {resource: None}}}
    lab.run(actions.send_request("PATCH", f"{path}/status", removal))
    gone, removed = node.became({"status": neither}), node.became({"status": without})
    resources.expect_later(gone, within=windows.status_update(), after=removed)


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
    creation = moments.created("leases", node, IN_LEASES, like=own)
    recreated = claim("heartbeat.lease-recreated")
    recreated.expect(creation, within=renewal, after=removal)
    recreated.never(node.unknown, throughout=until_unknown_s, after=removal)


def _conditions_later_than(node: dict[str, dict[str, list[dict[str, str]]]]) -> list[dict[str, object]]:
    """Return a pattern of the kubelet's conditions with other report times than in this Node."""
    return [
        {"type": condition["type"], "lastHeartbeatTime": {"$not": condition["lastHeartbeatTime"]}}
        for condition in node["status"]["conditions"]
        if condition["type"] in CONDITIONS
    ]
