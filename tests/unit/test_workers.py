"""How many workers tests with labs get, by the kind of lab."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.labs.kinds import LIBVIRT, VAGRANT
from tests import conftest
from tests.conftest import GIB, pytest_xdist_auto_num_workers


def asked(kind: str) -> pytest.Config:
    """What pytest was told: contract tests on this kind."""
    options: dict[str, Any] = {"shipped": False, "contract_lab": kind}
    config = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default), args=["tests/contract"]
    )
    return cast(pytest.Config, config)


@pytest.mark.parametrize("kind", [LIBVIRT.name, VAGRANT.name])
@pytest.mark.parametrize(
    ("has_kvm", "cores", "gib", "workers"),
    [(True, 2, 24, 2), (True, 8, 24, 4), (True, 8, 4, 1), (False, 2, 24, 1), (False, 8, 24, 4)],
)
def test_machines_have_a_lab_for_each_core_with_kvm_and_for_two_without(
    kind: str, has_kvm: bool, cores: int, gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "runs_on_kvm", lambda *_arguments: has_kvm)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gib * GIB, "SC_PAGE_SIZE": 1}.__getitem__)

    assert pytest_xdist_auto_num_workers(asked(kind)) == workers
