"""NodeRestriction: what a kubelet's user may do, and on which objects."""

import uuid
from functools import partial
from typing import Any

from nodeproof.actions import Method
from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes
from nodeproof.scenario.kubernetes import Pod
from nodeproof.scenario.types import Check

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OTHER_LEASES = LEASES.replace("kube-node-lease", "default")
PODS = "/api/v1/namespaces/nodeproof/pods"
OTHER_SECRETS = "/api/v1/namespaces/default/secrets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OK, CREATED, FORBIDDEN, CONFLICT = ({"status": status} for status in (200, 201, 403, 409))
NOT_ALLOWED = {"status": {"$in": [403, 404]}}
"""An API server whose cache lacks the pod still answers that there is none."""
ALLOWED, DENIED = ({"status": 201, "body": {"status": {"allowed": allowed}}} for allowed in (True, False))
NO_TAINTS = {"status": 403, "body": {"message": {"$contains": "is not allowed to modify taints"}}}
ANNOTATION = {"metadata": {"annotations": {"example.com/noted": "yes"}}}
STATUS = {"status": {"nodeInfo": {"kernelVersion": "nodeproof"}}}
POD_STATUS = {"status": {"message": "nodeproof"}}
FORBIDDEN_LABELS = (
    "node-restriction.kubernetes.io/team",
    "kubernetes.io/team",
    "other.kubernetes.io/team",
    "k8s.io/team",
    "other.k8s.io/team",
)
RESERVED = "node-restriction.kubernetes.io/kept"
EXISTING_TAINT = {"key": "example.com/kept", "value": "nodeproof", "effect": "PreferNoSchedule"}
ADDED_TAINT = {"key": "example.com/added", "effect": "NoSchedule"}
CHANGED_TAINTS: tuple[list[dict[str, str]] | None, ...] = (
    None,
    [ADDED_TAINT],
    [EXISTING_TAINT, ADDED_TAINT],
    [{**EXISTING_TAINT, "value": "other"}],
    [{**EXISTING_TAINT, "effect": "NoSchedule"}],
    [{**EXISTING_TAINT, "key": "example.com/other"}],
)


@needs(nodes=2, faulted=1, duration_s="15")
def test_kubelet_can_modify_only_its_own_node(lab: Lab, claim: Expectations) -> None:
    """The other Nodes include one whose name begins with the kubelet's, and one that is a prefix of it."""
    node, restricted = lab.target, claim("node-restriction.taints")
    another = next(entry.name for entry in lab.nodes() if entry.name != node)
    existing = faults.taint(node, EXISTING_TAINT["key"], EXISTING_TAINT["effect"], EXISTING_TAINT["value"])
    longer, shorter = f"{node}0-{uuid.uuid4().hex[:8]}", node[:-1].rstrip("-.")

    with lab.record():
        lab.run(actions.create_node(longer))
        with lab.inject(existing), lab.inject(faults.set_label(RESERVED, "yes", {node: None})):
            expect_access_to_own_objects(lab, claim)
            for taints in CHANGED_TAINTS:
                restricted.expect_later(send(lab, "PATCH", f"{NODES}/{node}", with_taints(taints), NO_TAINTS))
            for other in (another, longer):
                for path, body in ((f"{NODES}/{other}", ANNOTATION), (f"{NODES}/{other}/status", STATUS)):
                    answer = send(lab, "PATCH", path, body, FORBIDDEN)
                    claim("node-restriction.modify-own-only").expect_later(answer)
            for other in ("nodeproof-stranger", longer, shorter):
                answer = send(lab, "POST", NODES, named_object(other), FORBIDDEN)
                claim("node-restriction.create-other-denied").expect_later(answer)
            for other in (another, longer, shorter):
                expect_no_access_to(lab, claim, other)
        expect_restricted_registration(lab, claim)
        expect_access_to_own_pods(lab, claim)
        expect_access_to_own_secrets(lab, claim)


def expect_access_to_own_objects(lab: Lab, claim: Expectations) -> None:
    """Expect the access of the kubelet to its own Node and Lease, and to whole collections."""
    node, answer = lab.target, partial(send, lab)
    own, lease = f"{NODES}/{node}", f"{LEASES}/{node}"

    modify, delete = claim("node-restriction.modify-own-only"), claim("node-restriction.delete-denied")
    # Each claim begins with an allowed request, so that a 403 has no other cause than its rule.
    modify.expect_later(answer("PATCH", own, ANNOTATION, OK))
    modify.expect_later(answer("PATCH", f"{own}/status", STATUS, OK))
    # 409: the request was authorized, and the object exists.
    creation = answer("POST", NODES, named_object(node), CONFLICT)
    claim("node-restriction.create-other-denied").expect_later(creation)
    delete.expect_later(answer("PATCH", own, ANNOTATION, OK))
    delete.expect_later(answer("DELETE", own, None, FORBIDDEN))
    delete.expect_later(answer("DELETE", NODES, None, FORBIDDEN))
    # The garbage collector would delete a Node whose owner does not exist.
    delete.expect_later(answer("PATCH", own, owned_by_nobody(), FORBIDDEN))
    labels, taints = claim("node-restriction.labels"), claim("node-restriction.taints")
    labels.expect_later(answer("PATCH", own, with_label("example.com/team"), OK))
    for key in FORBIDDEN_LABELS:
        for path in (own, f"{own}/status"):
            labels.expect_later(answer("PATCH", path, with_label(key), FORBIDDEN))
    # The value does not change, and NodeRestriction compares the old and new labels.
    labels.expect_later(answer("PATCH", own, with_label(RESERVED), OK))
    for value in ("no", None):
        labels.expect_later(answer("PATCH", own, with_label(RESERVED, value), FORBIDDEN))
    taints.expect_later(answer("PATCH", own, ANNOTATION, OK))
    taints.expect_later(answer("PATCH", own, with_taints([EXISTING_TAINT]), OK))
    leases, read = claim("node-restriction.lease-own-only"), claim("node-restriction.read-own-only")
    leases.expect_later(answer("GET", lease, None, OK))
    leases.expect_later(answer("PATCH", lease, lease_holder(node), OK))
    leases.expect_later(answer("DELETE", lease, None, OK))
    leases.expect_later(answer("POST", LEASES, {**named_object(node), **lease_holder(node)}, CONFLICT))
    leases.expect_later(answer("POST", OTHER_LEASES, {**named_object(node), **lease_holder(node)}, FORBIDDEN))
    read.expect_later(answer("GET", own, None, OK))
    read.expect_later(answer("GET", NODES, None, FORBIDDEN))
    # A SelfSubjectAccessReview instead of a watch: an allowed watch would not end.
    read.expect_later(answer("POST", REVIEWS, watch_of(node), ALLOWED))
    read.expect_later(answer("POST", REVIEWS, watch_of(""), DENIED))


def expect_no_access_to(lab: Lab, claim: Expectations, other: str) -> None:
    """Expect that the kubelet cannot delete or read another Node, and cannot touch its Lease."""
    answer, held = partial(send, lab), lease_holder(lab.target)
    node, lease = f"{NODES}/{other}", f"{LEASES}/{other}"
    leases, read = claim("node-restriction.lease-own-only"), claim("node-restriction.read-own-only")
    claim("node-restriction.delete-denied").expect_later(answer("DELETE", node, None, FORBIDDEN))
    leases.expect_later(answer("POST", LEASES, {**named_object(other), **held}, FORBIDDEN))
    leases.expect_later(answer("PATCH", lease, held, FORBIDDEN))
    leases.expect_later(answer("DELETE", lease, None, FORBIDDEN))
    leases.expect_later(answer("GET", lease, None, FORBIDDEN))
    read.expect_later(answer("GET", node, None, FORBIDDEN))
    read.expect_later(answer("POST", REVIEWS, watch_of(other), DENIED))


def expect_restricted_registration(lab: Lab, claim: Expectations) -> None:
    """Expect that a kubelet that has no Node yet may register with the same labels only."""
    stranger = f"stranger-{uuid.uuid4().hex[:8]}"
    answers = {"example.com/team": {"status": 201}, **dict.fromkeys(FORBIDDEN_LABELS, FORBIDDEN)}
    for key, answer in answers.items():
        body = {"metadata": {"name": stranger, "labels": {key: "yes"}}}
        registration = actions.dry_run("POST", NODES, body, by=actions.kubelet_of(stranger))
        claim("node-restriction.labels").expect_value(lab.run(registration), answer)


def expect_access_to_own_pods(lab: Lab, claim: Expectations) -> None:
    """Expect that the kubelet reports, deletes, evicts and mirrors pods of its own Node only."""
    node, another, answer = lab.target, lab.others[0], partial(send, lab)
    own, other = (lab.run(actions.run_pod(on=name)) for name in (node, another))
    uid = lab.observe(probes.node_field(node, "metadata.uid")).value
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **named_object(other.name)}

    read = claim("node-restriction.read-own-pods-only")
    for pod, status in ((own, OK), (other, FORBIDDEN)):
        read.expect_later(answer("GET", pod.path, None, status))
    read.expect_later(answer("GET", PODS, None, FORBIDDEN))
    for name, decision in ((node, ALLOWED), (another, DENIED)):
        read.expect_later(answer("POST", REVIEWS, list_of_pods(on=name), decision))
    restricted = claim("node-restriction.own-pods-only")
    restricted.expect_later(answer("PATCH", f"{own.path}/status", POD_STATUS, OK))
    restricted.expect_later(answer("PATCH", f"{other.path}/status", POD_STATUS, FORBIDDEN))
    labels = with_label("example.com/team")
    restricted.expect_later(answer("PATCH", f"{own.path}/status", labels, FORBIDDEN))
    restricted.expect_later(answer("DELETE", other.path, None, NOT_ALLOWED))
    restricted.expect_later(answer("POST", f"{other.path}/eviction", eviction, NOT_ALLOWED))
    for name, status in ((node, CREATED), (another, FORBIDDEN)):
        restricted.expect_later(answer("POST", PODS, mirror_pod(name, owner=node, uid=uid), status))


def expect_access_to_own_secrets(lab: Lab, claim: Expectations) -> None:
    """Expect that the kubelet reads Secrets and ConfigMaps, and gets tokens, of pods of its own Node only.

    Another namespace has a Secret with the name of one that it may read.
    """
    namespace, restricted = "/api/v1/namespaces/nodeproof", claim("node-restriction.own-secrets-only")
    tokens, own, other = f"{namespace}/serviceaccounts/default/token", lab.target, lab.others[0]
    pods: dict[str, Pod] = {}

    for node in (own, other):
        name = f"secret-{uuid.uuid4().hex[:8]}"
        for kind in ("secrets", "configmaps"):
            lab.run(actions.send_request("POST", f"{namespace}/{kind}", named_object(name)))
        files = [{"secret": {"name": name}}, {"configMap": {"name": name}}]
        sources = [*files, {"serviceAccountToken": {"path": "token"}}]
        volumes = [{"name": "own", "projected": {"sources": sources}}]
        pods[name] = lab.run(actions.pending_pod(only_on=node, volumes=volumes))
    for name, pod in pods.items():
        # Its own kubelet has been given all of them then.
        lab.wait_for(pod.running.after(pod.created, 60.0))
        lab.check_in_time(lab.find(pod.running) is not None, otherwise=f"pod {pod.name} did not start")
        read, request = (OK, CREATED) if pod.node == own else (FORBIDDEN, NOT_ALLOWED)
        for kind in ("secrets", "configmaps"):
            restricted.expect_later(send(lab, "GET", f"{namespace}/{kind}/{name}", None, read))
        if pod.node == own:
            lab.run(actions.send_request("POST", OTHER_SECRETS, named_object(name)))
            restricted.expect_later(send(lab, "GET", f"{OTHER_SECRETS}/{name}", None, FORBIDDEN))
        uid = lab.observe(probes.field_of(pod.path, "metadata.uid")).value
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid}
        restricted.expect_later(send(lab, "POST", tokens, {"spec": {"boundObjectRef": bound}}, request))
    restricted.expect_later(send(lab, "POST", tokens, {"spec": {}}, FORBIDDEN))
    # Of objects that no pod uses: if the kubelet might read them, the answer would be 404.
    for path in (f"{namespace}/persistentvolumeclaims/unused", "/api/v1/persistentvolumes/unused"):
        restricted.expect_later(send(lab, "GET", path, None, FORBIDDEN))


def send(lab: Lab, method: Method, path: str, body: Any, answer: dict[str, Any]) -> Check:
    """Send a dry run as the user of the target's kubelet (impersonated), and return a check of its answer."""
    request = actions.dry_run(method, path, body, by=actions.kubelet_of(lab.target))
    return checks.shows(lab.run(request), answer)


def named_object(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def lease_holder(node: str) -> dict[str, Any]:
    return {"spec": {"holderIdentity": node}}


def mirror_pod(node: str, *, owner: str, uid: str) -> dict[str, Any]:
    """Return a mirror pod on a node, which the Node `owner` owns."""
    reference = {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid, "controller": True}
    return {
        "metadata": {
            "name": f"mirror-{uuid.uuid4().hex[:8]}",
            "annotations": {"kubernetes.io/config.mirror": "nodeproof"},
            "ownerReferences": [reference],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nodeproof.local/pause:1"}]},
    }


def with_label(key: str, value: str | None = "yes") -> dict[str, Any]:
    """Return a patch that sets a label, or removes it."""
    return {"metadata": {"labels": {key: value}}}


def owned_by_nobody() -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": str(uuid.uuid4())}
    return {"metadata": {"ownerReferences": [owner]}}


def with_taints(taints: list[dict[str, str]] | None) -> dict[str, Any]:
    return {"spec": {"taints": taints}}


def watch_of(name: str) -> dict[str, Any]:
    """Return the review of a watch of the Node of a name, or of all Nodes if it is empty."""
    return {"spec": {"resourceAttributes": {"verb": "watch", "resource": "nodes", "name": name}}}


def list_of_pods(*, on: str) -> dict[str, Any]:
    """Return the review of a list of all pods of a Node."""
    requirement = {"key": "spec.nodeName", "operator": "In", "values": [on]}
    selector = {"requirements": [requirement]}
    return {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": selector}}}
