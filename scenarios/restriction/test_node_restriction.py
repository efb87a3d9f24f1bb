"""NodeRestriction: what a kubelet's credential may do, and to which objects."""

import uuid
from functools import partial
from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, kubelet_of, labelled, make_node, needs, shows, taint, would

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASES_ELSEWHERE = LEASES.replace("kube-node-lease", "default")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DONE, FORBIDDEN, THERE_ALREADY = {"status": 200}, {"status": 403}, {"status": 409}
MAY, MAY_NOT = ({"status": 201, "body": {"status": {"allowed": allowed}}} for allowed in (True, False))
NO_TAINTS = {"status": 403, "body": {"message": {"$contains": "is not allowed to modify taints"}}}
NOTED = {"metadata": {"annotations": {"example.com/noted": "yes"}}}
REPORTED = {"status": {"nodeInfo": {"kernelVersion": "nodeproof"}}}
RESERVED = "node-restriction.kubernetes.io/kept"
KEPT = {"key": "example.com/kept", "value": "nodeproof", "effect": "PreferNoSchedule"}
ADDED = {"key": "example.com/added", "effect": "NoSchedule"}
OTHERWISE_TAINTED: tuple[list[dict[str, str]] | None, ...] = (
    None,
    [ADDED],
    [KEPT, ADDED],
    [{**KEPT, "value": "other"}],
    [{**KEPT, "effect": "NoSchedule"}],
    [{**KEPT, "key": "example.com/other"}],
)


@claims(
    "node-restriction.modify-own-only",
    "node-restriction.create-other-denied",
    "node-restriction.delete-denied",
    "node-restriction.labels",
    "node-restriction.taints",
    "node-restriction.lease-own-only",
    "node-restriction.read-own-only",
)
@needs(nodes=2, faulted=1, lasts="10")
def test_a_kubelet_changes_its_own_node_and_no_other(lab: Stage, judge: Judge) -> None:
    """Others are a node of the lab, and names that begin with the own one, or that it begins with: such are
    equal to who compares prefixes.
    """
    name = lab.target
    another = next(entry.name for entry in lab.nodes() if entry.name != name)
    longer, shorter = f"{name}0-{uuid.uuid4().hex[:8]}", name[:-1].rstrip("-.")
    own, strangers = f"{NODES}/{name}", ("nodeproof-stranger", longer, shorter)
    by_kubelet = partial(would, by=kubelet_of(name))
    held = {"spec": {"holderIdentity": name}}
    asked = [
        ("modify-own-only", by_kubelet("PATCH", own, NOTED), DONE),
        ("modify-own-only", by_kubelet("PATCH", f"{own}/status", REPORTED), DONE),
        ("create-other-denied", by_kubelet("POST", NODES, named(name)), THERE_ALREADY),
        ("delete-denied", by_kubelet("PATCH", own, NOTED), DONE),
        ("delete-denied", by_kubelet("DELETE", own), FORBIDDEN),
        ("delete-denied", by_kubelet("DELETE", NODES), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, with_label("example.com/team")), DONE),
        ("labels", by_kubelet("PATCH", own, with_label("node-restriction.kubernetes.io/team")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, with_label("other.kubernetes.io/team")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, with_label("k8s.io/team")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, with_label(RESERVED)), DONE),
        ("labels", by_kubelet("PATCH", own, with_label(RESERVED, "no")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, with_label(RESERVED, None)), FORBIDDEN),
        ("taints", by_kubelet("PATCH", own, NOTED), DONE),
        ("taints", by_kubelet("PATCH", own, tainted([KEPT])), DONE),
        ("lease-own-only", by_kubelet("GET", f"{LEASES}/{name}"), DONE),
        ("lease-own-only", by_kubelet("PATCH", f"{LEASES}/{name}", held), DONE),
        ("lease-own-only", by_kubelet("DELETE", f"{LEASES}/{name}"), DONE),
        ("lease-own-only", by_kubelet("POST", LEASES, {**named(name), **held}), THERE_ALREADY),
        ("lease-own-only", by_kubelet("POST", LEASES_ELSEWHERE, {**named(name), **held}), FORBIDDEN),
        ("read-own-only", by_kubelet("GET", own), DONE),
        ("read-own-only", by_kubelet("GET", NODES), FORBIDDEN),
        # Nobody waits for the end of a watch that is granted.
        ("read-own-only", by_kubelet("POST", REVIEWS, watches(name)), MAY),
        ("read-own-only", by_kubelet("POST", REVIEWS, watches("")), MAY_NOT),
    ]
    for taints in OTHERWISE_TAINTED:
        asked.append(("taints", by_kubelet("PATCH", own, tainted(taints)), NO_TAINTS))
    for other in (another, longer):
        asked.append(("modify-own-only", by_kubelet("PATCH", f"{NODES}/{other}", NOTED), FORBIDDEN))
        reported = by_kubelet("PATCH", f"{NODES}/{other}/status", REPORTED)
        asked.append(("modify-own-only", reported, FORBIDDEN))
    for other in strangers:
        asked.append(("create-other-denied", by_kubelet("POST", NODES, named(other)), FORBIDDEN))
    for other in (another, longer, shorter):
        lease = f"{LEASES}/{other}"
        asked += [
            ("delete-denied", by_kubelet("DELETE", f"{NODES}/{other}"), FORBIDDEN),
            ("lease-own-only", by_kubelet("POST", LEASES, {**named(other), **held}), FORBIDDEN),
            ("lease-own-only", by_kubelet("PATCH", lease, held), FORBIDDEN),
            ("lease-own-only", by_kubelet("DELETE", lease), FORBIDDEN),
            ("lease-own-only", by_kubelet("GET", lease), FORBIDDEN),
            ("read-own-only", by_kubelet("GET", f"{NODES}/{other}"), FORBIDDEN),
            ("read-own-only", by_kubelet("POST", REVIEWS, watches(other)), MAY_NOT),
        ]

    with lab.record():
        lab.do(make_node(longer))
        with (
            lab.inject(taint(name, KEPT["key"], KEPT["effect"], KEPT["value"])),
            lab.inject(labelled(RESERVED, "yes", {name: None})),
        ):
            answers = [(claim, lab.do(action), expected) for claim, action, expected in asked]
    for claim, answer, expected in answers:
        judge(f"node-restriction.{claim}", shows(answer, expected))


def named(name: str) -> dict[str, Any]:
    """An object that has no more than a name."""
    return {"metadata": {"name": name}}


def with_label(key: str, value: str | None = "yes") -> dict[str, Any]:
    """A Node with one more label, another value of it, or none."""
    return {"metadata": {"labels": {key: value}}}


def tainted(taints: list[dict[str, str]] | None) -> dict[str, Any]:
    """A Node with these taints and no others."""
    return {"spec": {"taints": taints}}


def watches(name: str) -> dict[str, Any]:
    """The question whether who asks may watch the Node of a name; of none, all Nodes."""
    return {"spec": {"resourceAttributes": {"verb": "watch", "resource": "nodes", "name": name}}}
