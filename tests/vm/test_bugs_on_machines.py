"""Kubelets with a bug on virtual machines: the claims that the bug names deviate, maybe among others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.artifacts.components import obtain
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from tests.acceptance.altered import Cluster, check_deviations, shipped, unaltered
from tests.sensitivity.bugs import BUG_VARIABLE, Bug, load
from tests.sensitivity.build import build
from tests.vm.altering import KUBELET_ENVIRONMENT, kubelet_restarted_with
from tests.vm.conftest import Run, running_lab

BUGS = [pytest.param(bug, id=bug.name) for bug in load() if bug.machine]


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[LabHandle]:
    """Start one lab whose components have all bugs, of which none is selected."""
    components = obtain(str(build(load(), print)), DEFAULT_KUBERNETES_VERSION, print)
    with running_lab(components) as lab:
        yield lab


@pytest.mark.parametrize("bug", BUGS)
def test_scenario_catches_a_kubelet_with_a_bug(lab: LabHandle, run: Run, tmp_path: Path, bug: Bug) -> None:
    selection = ("-k", bug.select) if bug.select else ()
    with kubelet_restarted_with(Cluster(lab, tmp_path), KUBELET_ENVIRONMENT, f"$a{BUG_VARIABLE}={bug.name}"):
        result = run(lab, unaltered, shipped(bug.scenario), *selection)

    check_deviations(result, {*bug.falls})
