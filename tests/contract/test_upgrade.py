"""The fault `upgrade`: components run a newer version, and the lab's own again once it is healed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodeproof.artifacts.components import cached
from nodeproof.faults.settings import Upgrade
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.starting import UPGRADED, LabRequest
from nodeproof.labs.kinds import PROCESS
from nodeproof.model.overrides import NO_OVERRIDES
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.safety.injector import HEAL_TIMEOUT_S, INJECT_TIMEOUT_S
from tests.waiting import eventually, first_answer

OLDER = "v1.36.3"


@pytest.fixture(scope="module")
def older_lab() -> Iterator[LabHandle]:
    """Start a lab that can be upgraded; nothing is built for it."""
    components = cached(OLDER)
    if components is None:
        pytest.skip(f"Kubernetes {OLDER} is not built here")
    overrides = replace(NO_OVERRIDES, upgrade_to=DEFAULT_KUBERNETES_VERSION)
    request = LabRequest(starting.new_name(), 2, 1, FAST.name, False, PROCESS.name, overrides=overrides)
    lab = starting.up(request, components, print)
    yield lab
    lab.down()


def test_components_are_upgraded_in_order_and_downgraded_in_reverse(older_lab: LabHandle) -> None:
    faults = [Upgrade(component, older_lab.upgrade_version) for component in UPGRADED]
    for fault in faults:
        machine = older_lab.fleet.machine(fault.node)
        assert fault.available(machine) == ""
        assert fault.is_healed(machine)
        fault.inject(machine)
        fault.inject(machine)
        assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)  # noqa: B023
        assert not first_answer(lambda: fault.is_healed(machine))  # noqa: B023
    assert older_lab.cluster.api.get("/version")["gitVersion"] == DEFAULT_KUBERNETES_VERSION
    for fault in reversed(faults):
        machine = older_lab.fleet.machine(fault.node)
        fault.heal(machine)
        fault.heal(machine)
        assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)  # noqa: B023
    assert older_lab.cluster.api.get("/version")["gitVersion"] == OLDER
    older_lab.wait_nodes_ready()


def test_upgrade_left_behind_is_healed_without_its_ledger_entry(older_lab: LabHandle) -> None:
    fault = Upgrade(UPGRADED[-1], older_lab.upgrade_version)
    machine = older_lab.fleet.machine(fault.node)
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)
    assert older_lab.safety.heal_unfinished() == []
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)


def test_version_that_the_lab_lacks_is_unavailable(older_lab: LabHandle) -> None:
    machine = older_lab.fleet.machine("etcd")
    assert Upgrade("etcd", DEFAULT_KUBERNETES_VERSION).available(machine) == (
        f"the lab has no etcd {DEFAULT_KUBERNETES_VERSION}: use --upgrade-to"
    )
