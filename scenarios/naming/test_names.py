"""Names of Nodes, and Nodes that a user creates by hand."""

from nodeproof.scenario import Expectations, Lab, actions, checks, needs, probes

NODES = "/api/v1/nodes"
NAME, LABELS = "10.240.79.157", {"name": "my-first-k8s-node"}
EXAMPLE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": NAME, "labels": LABELS}}
"""The example manifest of the Nodes page."""
INVALID_NAME = {"status": 422, "body": {"message": {"$contains": "metadata.name: Invalid value"}}}
VALID = ("n" * 253, "1", "a-1.b-2.c")
INVALID = ("Node-1", "node_1", "node..1", "-node", "node-", "n" * 254)


@needs(nodes=2)
def test_api_accepts_only_dns_subdomains_as_node_names(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        for name in VALID:
            acceptance = lab.run(actions.dry_run("POST", NODES, {"metadata": {"name": name}}))
            claim("naming.dns-subdomain").expect_value(acceptance, {"status": 201})
        for name in INVALID:
            refusal = lab.run(actions.dry_run("POST", NODES, {"metadata": {"name": name}}))
            claim("naming.dns-subdomain").expect_value(refusal, INVALID_NAME)
        creation = lab.run(actions.send_request("POST", NODES, EXAMPLE))
        node = lab.run(actions.send_request("GET", f"{NODES}/{NAME}"))

    accepted = claim("naming.dns-subdomain").expect_value(creation, {"status": 201})
    claim("manual-node.create").expect_later(accepted)
    claim("manual-node.create").expect_value(node, {"body": {"metadata": {"labels": LABELS}}})


@needs(nodes=2)
def test_duplicate_node_name_is_rejected(lab: Lab, claim: Expectations) -> None:
    uid = probes.node_field(lab.target, "metadata.uid")
    with lab.record():
        before = lab.observe(uid)
        duplicate = lab.run(actions.send_request("POST", NODES, {"metadata": {"name": lab.target}}))
        after = lab.observe(uid)
    claim("naming.unique").expect_value(duplicate, {"status": 409})
    claim("naming.unique").expect_later(checks.same_as(after, before))
