"""The output of kubectl about a node."""

import uuid
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes
from nodeproof.scenario.kubernetes import Node, Pod, unique

NODES, NAMESPACE = "/api/v1/nodes", "nodeproof"
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
COLUMNS = (
    "worker   ",
    "the-kubeletversion   192.0.2.1   198.51.100.1   the-osimage   the-kernelversion (the-architecture)   "
    "the-containerruntimeversion",
)
"""The columns ROLES, and VERSION to CONTAINER-RUNTIME, of the Node that has STATUS."""
ALLOCATED = ("1400m (28%)  500m (10%)", "420Mi (13%)  512Mi (16%)")
"""The sums of requests and limits of CPU and memory, and their shares of what is allocatable.

1100m is what the init container and the sidecar request together, which is more than the containers do.
320Mi is what the container and the sidecar request together. The second pod requests 300m and 100Mi.
"""
SHOWN = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady", None: "Unknown"}
"""The STATUS column by the status of Ready; None is a Node without conditions."""


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
        status = lab.observe(probes.node_field(lab.target, "status")).value
        description = lab.observe(probes.described(lab.target))
        for heading, section in sections(status).items():
            describes.expect_value(description, {heading: section})
        metadata = {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}}
        body = {"metadata": metadata, "status": STATUS}
        creation = lab.run(actions.send_request("POST", NODES, body))
        describes.expect_value(creation, {"status": 201})
        row = lab.run(actions.kubectl("get", "node", name, "--output=wide", "--no-headers"))
        for column in COLUMNS:
            claim("info.wide-columns").expect_value(row, {"stdout": {"$contains": column}})
        # First: without heartbeats, the conditions become Unknown.
        description = lab.observe(probes.described(name))
        for heading, section in sections(STATUS).items():
            describes.expect_value(description, {heading: section})
        expect_pods_described(lab, claim, name)
        expect_status_column(lab, claim)


def expect_pods_described(lab: Lab, claim: Expectations, node: str) -> None:
    """Expect the description of a Node to show its pods and their resources, without those that ended."""
    compound, simple, finished = (Pod(NAMESPACE, unique("described"), node) for _ in range(3))
    main = container("main", "250m", "256Mi", limits={"cpu": "500m", "memory": "512Mi"})
    sidecar = container("sidecar", "100m", "64Mi", restartPolicy="Always")
    init = [sidecar, container("init", "1", "16Mi")]
    specs: dict[Pod, dict[str, Any]] = {
        compound: {"initContainers": init, "containers": [main]},
        simple: {"containers": [container("main", "300m", "100Mi")]},
        finished: {"containers": [container("main", "2", "1Gi")]},
    }
    for pod, spec in specs.items():
        lab.run(actions.create_pod(pod, **spec))
    ended = {"status": {"phase": "Succeeded"}}
    lab.run(actions.send_request("PATCH", f"{finished.path}/status", ended))

    text, shows_pods = lab.run(actions.kubectl("describe", "node", node)), claim("info.describe-pods")
    for shown in (compound.name, simple.name, "(2 in total)", *ALLOCATED):
        shows_pods.expect_value(text, {"stdout": {"$contains": shown}})
    shows_pods.expect_value(text, {"stdout": {"$not": {"$contains": finished.name}}})


def container(
    name: str, cpu: str, memory: str, limits: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a container that requests CPU and memory."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": limits or {}}
    return {"name": name, "image": "nodeproof.local/pause:1", "resources": resources, **fields}


def expect_status_column(lab: Lab, claim: Expectations) -> None:
    """Expect the STATUS of Nodes that are made by hand, cordoned or not.

    The control plane changes a Node that does not report once its grace period is over.
    """
    mark, grace_s = uuid.uuid4().hex[:8], lab.configuration["G"]
    words: dict[Node, str] = {}
    for status, word in SHOWN.items():
        for is_cordoned in (False, True):
            node = Node(f"by-hand-{mark}-{len(words)}")
            conditions = [{"type": "Ready", "status": status}] if status else []
            body = {"spec": {"unschedulable": is_cordoned}, "status": {"conditions": conditions}}
            lab.run(actions.send_request("POST", NODES, {"metadata": {"name": node}, **body}))
            words[node] = f"{word},SchedulingDisabled" if is_cordoned else word
    rows = lab.run(actions.kubectl("get", "nodes", *words, "--no-headers"))
    for node, word in words.items():
        lab.check_not_due(node.unknown, rows.completed, since=moments.recording_began(), due_s=grace_s)
        # All names are equally long, so the columns are three spaces apart.
        shown = {"stdout": {"$contains": f"{node}   {word} "}}
        claim("info.status-column").expect_value(rows, shown)
