"""NodeRestriction: what a kubelet's credential may do, and to which objects."""

from functools import partial

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, kubelet_of, needs, shows, would

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DONE, FORBIDDEN, THERE_ALREADY = {"status": 200}, {"status": 403}, {"status": 409}
NO_TAINTS = {"status": 403, "body": {"message": {"$contains": "is not allowed to modify taints"}}}


@claims(
    "node-restriction.modify-own-only",
    "node-restriction.create-other-denied",
    "node-restriction.delete-denied",
    "node-restriction.labels",
    "node-restriction.taints",
    "node-restriction.lease-own-only",
    "node-restriction.read-own-only",
)
@needs(nodes=2)
def test_a_kubelet_changes_its_own_node_and_no_other(lab: Stage, judge: Judge) -> None:
    own, other = (f"{NODES}/{entry.name}" for entry in lab.nodes()[:2])
    name, another = (entry.name for entry in lab.nodes()[:2])
    by_kubelet = partial(would, by=kubelet_of(name))
    noted = {"metadata": {"annotations": {"example.com/noted": "yes"}}}
    held = {"spec": {"holderIdentity": name}}
    tainted = {"spec": {"taints": [{"key": "example.com/kept", "effect": "NoSchedule"}]}}
    stranger = {"metadata": {"name": "nodeproof-stranger"}}
    asked = [
        ("modify-own-only", by_kubelet("PATCH", own, noted), DONE),
        ("modify-own-only", by_kubelet("PATCH", other, noted), FORBIDDEN),
        ("create-other-denied", by_kubelet("POST", NODES, {"metadata": {"name": name}}), THERE_ALREADY),
        ("create-other-denied", by_kubelet("POST", NODES, stranger), FORBIDDEN),
        ("delete-denied", by_kubelet("PATCH", own, noted), DONE),
        ("delete-denied", by_kubelet("DELETE", own), FORBIDDEN),
        ("delete-denied", by_kubelet("DELETE", other), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, labelled("example.com/team")), DONE),
        ("labels", by_kubelet("PATCH", own, labelled("node-restriction.kubernetes.io/team")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, labelled("other.kubernetes.io/team")), FORBIDDEN),
        ("labels", by_kubelet("PATCH", own, labelled("k8s.io/team")), FORBIDDEN),
        ("taints", by_kubelet("PATCH", own, noted), DONE),
        ("taints", by_kubelet("PATCH", own, tainted), NO_TAINTS),
        ("lease-own-only", by_kubelet("PATCH", f"{LEASES}/{name}", held), DONE),
        ("lease-own-only", by_kubelet("PATCH", f"{LEASES}/{another}", held), FORBIDDEN),
        ("read-own-only", by_kubelet("GET", own), DONE),
        ("read-own-only", by_kubelet("GET", other), FORBIDDEN),
    ]
    with lab.record():
        answers = [(claim, lab.do(action), expected) for claim, action, expected in asked]
    for claim, answer, expected in answers:
        judge(f"node-restriction.{claim}", shows(answer, expected))


def labelled(key: str) -> dict[str, dict[str, dict[str, str]]]:
    """A Node with one more label."""
    return {"metadata": {"labels": {key: "yes"}}}
