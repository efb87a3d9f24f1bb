"""The output of kubectl about a node."""

import uuid
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, needs, probes

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
RESOURCES = ("cpu", "memory", "pods")
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
"""No two neighbouring values are equal, as a machine's often are."""


def sections(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections that the description of a Node with this status has."""
    return {
        "Capacity": {resource: status["capacity"][resource] for resource in RESOURCES},
        "Allocatable": {resource: status["allocatable"][resource] for resource in RESOURCES},
        "System Info": {label: status["nodeInfo"][field] for label, field in SYSTEM.items()},
        "Conditions": {condition["type"]: condition["status"] for condition in status["conditions"]},
        "Addresses": {address["type"]: address["address"] for address in status["addresses"]},
    }


@needs(nodes=2)
def test_kubectl_describe_matches_node_object(lab: Lab, claim: Expectations) -> None:
    """A node of the lab, and a Node that is created by hand and whose values all differ."""
    name, describes = f"by-hand-{uuid.uuid4().hex[:8]}", claim("info.describe-sections")

    with lab.record():
        status = lab.observe(probes.field_of(f"{NODES}/{lab.target}", "status")).value
        description = lab.observe(probes.described(lab.target))
        for heading, section in sections(status).items():
            describes.expect_later(checks.shows(description, {heading: section}))
        creation = lab.run(
            actions.send_request("POST", NODES, {"metadata": {"name": name}, "status": STATUS})
        )
        describes.expect_later(checks.shows(creation, {"status": 201}))
        description = lab.observe(probes.described(name))
        for heading, section in sections(STATUS).items():
            describes.expect_later(checks.shows(description, {heading: section}))
