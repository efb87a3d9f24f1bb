"""How many workers tests with labs get, by the kind of lab."""

from __future__ import annotations

import os
from pathlib import Path
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
    ("device", "cores", "gib", "workers"),
    [
        ("/dev/null", 2, 24, 2),
        ("/dev/null", 8, 24, 4),
        ("/dev/null", 8, 4, 1),
        ("/dev/none", 2, 24, 1),
        ("/dev/none", 8, 24, 4),
    ],
)
def test_machines_have_a_lab_for_each_core_with_kvm_and_for_two_without(
    kind: str, device: str, cores: int, gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "KVM", Path(device))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gib * GIB, "SC_PAGE_SIZE": 1}.__getitem__)

    assert pytest_xdist_auto_num_workers(asked(kind)) == workers
