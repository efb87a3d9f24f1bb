"""Names of Nodes, and Nodes that somebody makes by hand."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, ask, claims, field_of, needs, same_as, shows, would

NODES = "/api/v1/nodes"
NAME, LABELS = "10.240.79.157", {"name": "my-first-k8s-node"}
EXAMPLE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": NAME, "labels": LABELS}}
"""The page's own."""
INVALID_NAME = {"status": 422, "body": {"message": {"$contains": "metadata.name: Invalid value"}}}
VALID = ("n" * 253, "1", "a-1.b-2.c")
INVALID = ("Node-1", "node_1", "node..1", "-node", "node-", "n" * 254)


@claims("naming.dns-subdomain", "manual-node.create")
@needs(nodes=2)
def test_a_node_is_made_by_hand_under_a_name_that_is_a_dns_subdomain(lab: Stage, judge: Judge) -> None:
    path = f"{NODES}/{NAME}"
    with lab.record():
        taken, refused = (
            [lab.do(would("POST", NODES, {"metadata": {"name": name}})) for name in names]
            for names in (VALID, INVALID)
        )
        made, found = lab.do(ask("POST", NODES, EXAMPLE)), lab.do(ask("GET", path))
    for answer in refused:
        judge("naming.dns-subdomain", shows(answer, INVALID_NAME))
    for answer in (*taken, made):
        judge("naming.dns-subdomain", shows(answer, {"status": 201}))
    judge("manual-node.create", shows(made, {"status": 201}))
    judge("manual-node.create", shows(found, {"body": {"metadata": {"labels": LABELS}}}))


@claims("naming.unique")
@needs(nodes=2)
def test_a_name_is_one_nodes_at_a_time(lab: Stage, judge: Judge) -> None:
    first = field_of(f"{NODES}/{lab.target}", "metadata.uid")
    with lab.record():
        before = lab.look(first)
        second = lab.do(ask("POST", NODES, {"metadata": {"name": lab.target}}))
        after = lab.look(first)
    judge("naming.unique", shows(second, {"status": 409}))
    judge("naming.unique", same_as(after, before))
