"""One altered cluster per component, whose claims deviate; other claims deviate by the bugs of infra/bugs."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import (
    Alteration,
    check_deviations,
    controller_manager_is_paused,
    lease_renewal_is_late,
    node_creation_is_denied,
    pod_is_deleted_in_etcd,
    scheduler_is_paused,
    shipped,
    startup_taints_are_reconciled,
)
from tests.acceptance.conftest import Run
from tests.markers import falls

CORDON, LEASE = shipped("cordon/test_cordon.py"), shipped("heartbeat/test_lease.py")
NAMES, EDITS = shipped("naming/test_names.py"), shipped("registration/test_edits.py")
SHOWN, TAINT, BLOCKS = {"cordon.display", "cordon.not-a-condition"}, "cordon.taint", "cordon.blocks-new-pods"
NODES = ("naming.dns-subdomain", "naming.unique", "manual-node.create")
RENEWAL, WRITER = "heartbeat.lease-interval", "heartbeat.kubelet-is-writer"
COMPONENTS = [
    pytest.param(pod_is_deleted_in_etcd, CORDON, SHOWN | {TAINT}, marks=falls(BLOCKS), id="etcd"),
    pytest.param(node_creation_is_denied, NAMES, set(), marks=falls(*NODES), id="kube-apiserver"),
    pytest.param(
        controller_manager_is_paused,
        CORDON,
        SHOWN | {BLOCKS},
        marks=falls(TAINT),
        id="kube-controller-manager",
    ),
    pytest.param(scheduler_is_paused, CORDON, SHOWN | {TAINT}, marks=falls(BLOCKS), id="kube-scheduler"),
    pytest.param(lease_renewal_is_late, LEASE, {WRITER}, marks=falls(RENEWAL), id="kubelet"),
]
"""An altered component, the scenario, and the claims that conform all the same."""


@pytest.mark.core
@pytest.mark.xdist_group("whole lab")
@pytest.mark.parametrize(("alter", "scenario", "conforming"), COMPONENTS)
def test_claim_deviates_if_a_component_behaves_differently(
    whole_lab: LabHandle,
    run: Run,
    alter: Alteration,
    scenario: str,
    conforming: set[str],
    claims: frozenset[str],
) -> None:
    check_deviations(run(whole_lab, alter, scenario), claims, conforming)


@falls("registration.with-taints-noop-without-register", "registration.with-taints-not-reconciled")
def test_claims_deviate_if_startup_taints_are_reconciled(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    """NodeRestriction keeps a kubelet with a bug from it."""
    result = run(whole_lab, startup_taints_are_reconciled, EDITS, "-k", "keeps_taints")

    assert result.deviating() == claims
