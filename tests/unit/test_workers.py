"""The number of workers for tests with labs, by kind of lab."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.labs.kinds import LIBVIRT, VAGRANT
from tests import conftest
from tests.conftest import GIB, pytest_xdist_auto_num_workers


def config_for(kind: str) -> pytest.Config:
    """Return pytest's configuration of contract tests on this kind."""
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
def test_lab_workers_follow_cores_and_kvm(
    kind: str, has_kvm: bool, cores: int, gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "runs_on_kvm", lambda *_arguments: has_kvm)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gib * GIB, "SC_PAGE_SIZE": 1}.__getitem__)

    assert pytest_xdist_auto_num_workers(config_for(kind)) == workers
