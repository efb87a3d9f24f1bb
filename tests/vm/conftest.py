"""A lab of virtual machines, and what runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT
from tests.acceptance.altered import Alteration, RunResult, run_scenarios

Run = Callable[..., RunResult]
NODES = 2


@contextmanager
def running_lab(components: Components) -> Iterator[LabHandle]:
    """Start a lab of virtual machines in `fast`, and tear it down when the context ends."""
    lab_request = starting.LabRequest(starting.new_name(), NODES, 1, "fast", False, LIBVIRT.name)
    lab = starting.up(lab_request, components, print)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def shared_lab(components: Components) -> Iterator[LabHandle]:
    """Start one lab for all tests."""
    with running_lab(components) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: LabHandle) -> LabHandle:
    """Return the lab with its nodes Ready."""
    shared_lab.wait_nodes_ready()
    return shared_lab


@pytest.fixture
def run(tmp_path: Path, record_property: Callable[[str, object], None]) -> Run:
    """`run(lab, alteration, *arguments)`: runs scenarios on an altered cluster.

    The JUnit property `fell` has the claims that deviate.
    """

    def run_on(lab: LabHandle, alter: Alteration, *arguments: str) -> RunResult:
        result = run_scenarios(lab, tmp_path / "run", alter, *arguments)
        record_property("fell", sorted(result.deviating()))
        return result

    return run_on
