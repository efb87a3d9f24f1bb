"""A Node that its cloud initialises: addresses, provider ID and taints.

The scenario runs the upstream cloud-controller-manager, and sets the addresses that the cloud returns.
"""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes
from nodeproof.scenario.kubernetes import CLOUD, Node
from nodeproof.scenario.types import Moment

ANSWERS = "answers"
ADDRESS_SYNCS_S = 10.0
"""Several syncs of the cloud node controller (s)."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  the kubelet's default; the networks of the lab's nodes are private
UNUSED = "10.78.254.254"
"""An address of the lab's `control` network that no machine has."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
OWN_TAINT = {"key": "example.com/kept", "value": "nodeproof", "effect": "PreferNoSchedule"}


def external_ip_report(node: str, address: str) -> Moment:
    """Match a write of the Node with this ExternalIP."""
    addresses = [{"type": "ExternalIP", "address": address}]
    return moments.written("nodes", {"metadata": {"name": node}, "status": {"addresses": addresses}})


@needs(nodes=3, components=(CLOUD,), duration_s="35")
def test_node_has_external_addresses_reported_by_cloud(lab: Lab, claim: Expectations) -> None:
    """The cloud reports two external IPs: one of the machine (network `control`), one of no machine."""
    node, routable = Node("cloud-node"), claim("addresses.external-ip-routable")
    initialised = claim("cloud.initialised")

    with lab.record(), lab.inject(faults.cloud(answers={}, labels={}, initialises_nodes=True)):
        flags = ["--cloud-provider=external"]
        lab.run(actions.join(node, flags=flags, address=ALL_ADDRESSES, registerWithTaints=[OWN_TAINT]))
        machine = next(entry for entry in lab.nodes() if entry.name == node)
        internal, external = [machine.data_address], [machine.control_address, UNUSED]
        lab.run(actions.set_cloud_addresses(node, InternalIP=internal, ExternalIP=external))
        for address in external:
            routable.expect(external_ip_report(node, address), within=60.0, after=moments.booted(node))
        removed = node.taint(UNINITIALIZED, "NoSchedule").removed
        initialised.expect(removed, within=60.0, after=moments.booted(node))
        for field, value in (("taints", [OWN_TAINT]), ("providerID", f"nodeproof://{node}")):
            initialised.expect_value(lab.observe(probes.node_field(node, f"spec.{field}")), value)
        machine_answer, unused_answer = (
            lab.observe(probes.kubelet_at(node, address)) for address in external
        )
        routable.expect_value(machine_answer, ANSWERS)
        routable.expect_value(unused_answer, {"$not": ANSWERS})
        change = moments.changed("nodes", node, "status.addresses")
        routable.never(change, throughout=ADDRESS_SYNCS_S, after=unused_answer.completed)
