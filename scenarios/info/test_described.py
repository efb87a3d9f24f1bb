"""What kubectl shows of a node."""

import uuid
from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, ask, claims, described, field_of, needs, shows

NODES = "/api/v1/nodes"
SYSTEM = {
    "Architecture": "architecture",
    "Boot ID": "bootID",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kernel Version": "kernelVersion",
    "Kubelet Version": "kubeletVersion",
    "Machine ID": "machineID",
    "OS Image": "osImage",
    "Operating System": "operatingSystem",
    "System UUID": "systemUUID",
}
ROOM = ("cpu", "memory", "pods")
STATUS = {
    "capacity": {"cpu": "7", "memory": "6Gi", "pods": "17"},
    "allocatable": {"cpu": "5", "memory": "3Gi", "pods": "13"},
    "addresses": [
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "ExternalIP", "address": "198.51.100.1"},
        {"type": "Hostname", "address": "by-hand"},
    ],
    "conditions": [
        {"type": "Ready", "status": "False"},
        {"type": "MemoryPressure", "status": "True"},
        {"type": "DiskPressure", "status": "Unknown"},
        {"type": "PIDPressure", "status": "False"},
    ],
    "nodeInfo": {field: f"the-{field}".lower() for field in SYSTEM.values()},
}
"""No two values that stand beside each other are equal, as a machine's often are."""


def told_of(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The sections that a description of a Node with this status has."""
    return {
        "Capacity": {what: status["capacity"][what] for what in ROOM},
        "Allocatable": {what: status["allocatable"][what] for what in ROOM},
        "System Info": {label: status["nodeInfo"][field] for label, field in SYSTEM.items()},
        "Conditions": {each["type"]: each["status"] for each in status["conditions"]},
        "Addresses": {each["type"]: each["address"] for each in status["addresses"]},
    }


@claims("info.describe-sections")
@needs(nodes=2)
def test_kubectl_describes_a_node_as_the_api_has_it(lab: Stage, judge: Judge) -> None:
    """A node of the lab, and a Node that somebody makes by hand, whose values all differ."""
    name = f"by-hand-{uuid.uuid4().hex[:8]}"

    with lab.record():
        own = lab.look(field_of(f"{NODES}/{lab.target}", "status"))
        of_the_lab = lab.look(described(lab.target))
        made = lab.do(ask("POST", NODES, {"metadata": {"name": name}, "status": STATUS}))
        by_hand = lab.look(described(name))

    judge("info.describe-sections", shows(made, {"status": 201}))
    for seen, status in ((of_the_lab, own.value), (by_hand, STATUS)):
        for heading, told in told_of(status).items():
            judge("info.describe-sections", shows(seen, {heading: told}))
