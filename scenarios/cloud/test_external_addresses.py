"""Addresses of a Node that come from its cloud.

The controllers are upstream's; the scenario sets the addresses that the cloud returns.
"""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import CLOUD
from nodeproof.scenario.types import Moment

ANSWERS, UP_S, SEVERAL_PASSES_S = "answers", 60.0, 10.0
EVERYWHERE = "0.0.0.0"  # noqa: S104  the kubelet's default; the networks of the lab's nodes are private
UNUSED = "10.78.254.254"
"""An address of the lab's `control` network that no machine has."""


def external_ip(node: str, address: str) -> Moment:
    addresses = [{"type": "ExternalIP", "address": address}]
    return moments.written("nodes", {"metadata": {"name": node}, "status": {"addresses": addresses}})


@needs(nodes=3, components=(CLOUD,), lasts="35")
def test_node_has_external_addresses_reported_by_cloud(lab: Lab, claim: Expectations) -> None:
    """One is its machine's own on a network outside the cluster; no machine has the other one."""
    node = "clouded"

    with lab.record(), lab.inject(faults.cloud({}, {}, initialises_nodes=True)):
        lab.run(actions.join(node, flags=["--cloud-provider=external"], address=EVERYWHERE))
        machine = next(entry for entry in lab.nodes() if entry.name == node)
        own = machine.control_address
        lab.run(
            actions.set_cloud_addresses(node, InternalIP=[machine.data_address], ExternalIP=[own, UNUSED])
        )
        for address in (own, UNUSED):
            claim("addresses.external-ip-routable").expect(
                external_ip(node, address), within=windows.prompt(UP_S), after=moments.booted(node)
            )
        reached, silent = (lab.observe(probes.kubelet_at(node, address)) for address in (own, UNUSED))
        claim("addresses.external-ip-routable").expect_later(checks.shows(reached, ANSWERS))
        claim("addresses.external-ip-routable").expect_later(checks.shows(silent, {"$not": ANSWERS}))
        claim("addresses.external-ip-routable").never(
            moments.changed("nodes", node, "status.addresses"),
            throughout=windows.absence(SEVERAL_PASSES_S),
            after=silent.completed,
        )
