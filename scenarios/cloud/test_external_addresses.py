"""The addresses that a Node has from its cluster's cloud.

The controllers are upstream's; which addresses they are told is the scenario's.
"""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    CLOUD,
    Moment,
    Stage,
    booted,
    changed,
    claims,
    cloud,
    cloud_gives,
    join,
    kubelet_at,
    needs,
    shows,
    windows,
    written,
)

ANSWERS, UP_S, SEVERAL_PASSES_S = "answers", 60.0, 10.0
EVERYWHERE = "0.0.0.0"  # noqa: S104  the kubelet's own default; the lab's nodes have their networks for themselves
NOBODYS = "10.78.254.254"
"""Of the lab's `control` network, and no machine's."""


def has(node: str, address: str) -> Moment:
    told = {"type": "ExternalIP", "address": address}
    return written("nodes", {"metadata": {"name": node}, "status": {"addresses": [told]}})


@claims("addresses.external-ip-routable")
@needs(nodes=3, components=(CLOUD,), lasts="35")
def test_a_node_has_the_external_addresses_that_its_cloud_says_wherever_they_lead(
    lab: Stage, judge: Judge
) -> None:
    """One is the machine's own on a network that is not the cluster's; the other nobody has."""
    node = "clouded"
    altered = changed("nodes", node, "status.addresses")

    with lab.record(), lab.inject(cloud({}, {}, sets_up=True)):
        lab.do(join(node, flags=["--cloud-provider=external"], address=EVERYWHERE))
        machine = next(each for each in lab.nodes() if each.name == node)
        own = machine.control_address
        gives = cloud_gives(node, InternalIP=[machine.data_address], ExternalIP=[own, NOBODYS])
        lab.do(gives)
        told = [
            lab.wait_for(has(node, each).after(booted(node), windows.prompt(UP_S))) for each in (own, NOBODYS)
        ]
        reached, silent = (lab.look(kubelet_at(node, each)) for each in (own, NOBODYS))
        passes = windows.absence(SEVERAL_PASSES_S)
        kept = lab.wait_for(altered.never_after(silent.came, passes))

    for check in (*told, kept, shows(reached, ANSWERS), shows(silent, {"$not": ANSWERS})):
        judge("addresses.external-ip-routable", check)
