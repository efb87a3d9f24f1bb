"""One altered cluster for each component: a claim deviates because this component does otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import (
    a_renewal_is_late,
    etcd_loses_a_pod,
    nobody_may_make_nodes,
    nobody_schedules,
    nobody_taints,
)
from tests.acceptance.altered import Alteration, shipped
from tests.acceptance.conftest import Run

CORDON, LEASE = shipped("cordon/test_cordon.py"), shipped("heartbeat/test_lease.py")
NAMES = shipped("naming/test_names.py")


@dataclass(frozen=True)
class Altered:
    """What is done to a component, the scenario that runs meanwhile, and what its claims come to."""

    alter: Alteration
    scenario: str
    deviate: frozenset[str]
    conform: frozenset[str]


COMPONENTS = {
    "etcd": Altered(
        etcd_loses_a_pod,
        CORDON,
        frozenset({"cordon.blocks-new-pods"}),
        frozenset({"cordon.display", "cordon.not-a-condition", "cordon.taint"}),
    ),
    "kube-apiserver": Altered(
        nobody_may_make_nodes,
        NAMES,
        frozenset({"naming.dns-subdomain", "naming.unique", "manual-node.create"}),
        frozenset(),
    ),
    "kube-controller-manager": Altered(
        nobody_taints,
        CORDON,
        frozenset({"cordon.taint"}),
        frozenset({"cordon.blocks-new-pods", "cordon.display", "cordon.not-a-condition"}),
    ),
    "kube-scheduler": Altered(
        nobody_schedules,
        CORDON,
        frozenset({"cordon.blocks-new-pods"}),
        frozenset({"cordon.display", "cordon.not-a-condition", "cordon.taint"}),
    ),
    "kubelet": Altered(
        a_renewal_is_late,
        LEASE,
        frozenset({"heartbeat.lease-interval"}),
        frozenset({"heartbeat.kubelet-is-writer"}),
    ),
}


@pytest.mark.core
@pytest.mark.xdist_group("whole lab")
@pytest.mark.parametrize("component", COMPONENTS)
def test_a_claim_deviates_where_a_component_does_otherwise(whole_lab: Lab, run: Run, component: str) -> None:
    altered = COMPONENTS[component]
    ended = run(whole_lab, altered.alter, altered.scenario)

    labels = {claim: set(ended.labels(claim)) for claim in altered.deviate | altered.conform}
    assert {claim for claim, found in labels.items() if "deviates" in found} == altered.deviate, labels
    assert {claim for claim, found in labels.items() if found == {"conforms"}} == altered.conform, labels
    assert ended.status == 1
