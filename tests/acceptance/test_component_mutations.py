"""One altered cluster per component: a claim deviates because this component behaves differently."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.alterations import (
    a_renewal_is_late,
    etcd_loses_a_pod,
    nobody_may_make_nodes,
    nobody_schedules,
    nobody_taints,
)
from tests.acceptance.altered import Alteration, check_fall, shipped
from tests.acceptance.conftest import Run
from tests.markers import falls

CORDON, LEASE = shipped("cordon/test_cordon.py"), shipped("heartbeat/test_lease.py")
NAMES = shipped("naming/test_names.py")
COMPONENTS = [
    pytest.param(
        etcd_loses_a_pod,
        CORDON,
        {"cordon.display", "cordon.not-a-condition", "cordon.taint"},
        marks=falls("cordon.blocks-new-pods"),
        id="etcd",
    ),
    pytest.param(
        nobody_may_make_nodes,
        NAMES,
        set(),
        marks=falls("naming.dns-subdomain", "naming.unique", "manual-node.create"),
        id="kube-apiserver",
    ),
    pytest.param(
        nobody_taints,
        CORDON,
        {"cordon.blocks-new-pods", "cordon.display", "cordon.not-a-condition"},
        marks=falls("cordon.taint"),
        id="kube-controller-manager",
    ),
    pytest.param(
        nobody_schedules,
        CORDON,
        {"cordon.display", "cordon.not-a-condition", "cordon.taint"},
        marks=falls("cordon.blocks-new-pods"),
        id="kube-scheduler",
    ),
    pytest.param(
        a_renewal_is_late,
        LEASE,
        {"heartbeat.kubelet-is-writer"},
        marks=falls("heartbeat.lease-interval"),
        id="kubelet",
    ),
]
"""An altered component, the scenario, and the claims that conform all the same."""


@pytest.mark.core
@pytest.mark.xdist_group("whole lab")
@pytest.mark.parametrize(("alter", "scenario", "unharmed"), COMPONENTS)
def test_claim_deviates_if_a_component_behaves_differently(
    whole_lab: LabHandle,
    run: Run,
    alter: Alteration,
    scenario: str,
    unharmed: set[str],
    claims: frozenset[str],
) -> None:
    check_fall(run(whole_lab, alter, scenario), claims, unharmed)
