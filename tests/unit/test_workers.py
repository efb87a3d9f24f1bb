"""How many workers tests with labs get, by the kind of lab."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.labs.kinds import LIBVIRT, VAGRANT
from tests.conftest import GIB, pytest_xdist_auto_num_workers


def asked(kind: str) -> pytest.Config:
    """What pytest was told: contract tests on this kind."""
    options: dict[str, Any] = {"shipped": False, "contract_lab": kind}
    config = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default), args=["tests/contract"]
    )
    return cast(pytest.Config, config)


@pytest.mark.parametrize("kind", [LIBVIRT.name, VAGRANT.name])
@pytest.mark.parametrize(("cores", "gib", "workers"), [(2, 24, 2), (8, 24, 4), (8, 4, 1)])
def test_a_core_has_one_lab_of_machines_and_memory_for_it(
    kind: str, cores: int, gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gib * GIB, "SC_PAGE_SIZE": 1}.__getitem__)

    assert pytest_xdist_auto_num_workers(asked(kind)) == workers
