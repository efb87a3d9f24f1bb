"""A started lab of each kind, and the node on which tests inject faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.faults import Fault
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import PROCESS, kind_named
from nodeproof.machines.machine import Machine
from nodeproof.model.needs import Needs
from nodeproof.scenario.lab import Lab
from nodeproof.testing import healed_at_end
from tests.contract.kinds import FAULTS, KINDS, Kind

JOINED = "node-9"
"""The node that joins during a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for kind and size of the lab."""
    group = parser.getgroup("contract", "the same tests for every kind of lab")
    default = os.environ.get("NODEPROOF_CONTRACT_LAB", PROCESS.name)
    group.addoption("--contract-lab", default=default, choices=list(KINDS), help="kind of lab to try")
    group.addoption(
        "--contract-nodes", type=int, default=0, help="nodes of the lab (default: as the kind has it)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize every test with the kind of lab and the fault."""
    chosen = metafunc.config.getoption("contract_lab")
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", [chosen], indirect=True, scope="session")
    lacks = KINDS[chosen].lacks
    if "fault_name" in metafunc.fixturenames:
        metafunc.parametrize("fault_name", [name for name in FAULTS if name not in lacks])
    if "self_healing_fault" in metafunc.fixturenames:
        has = "systemd" in kind_named(chosen).features
        names = [name for name, make in FAULTS.items() if has and make("node").self_heal_command]
        metafunc.parametrize("self_healing_fault", names)
    if "fault_with_leftovers" in metafunc.fixturenames:
        names = [
            name
            for name, make in FAULTS.items()
            if "leftovers_on" in vars(type(make("node"))) and name not in lacks
        ]
        metafunc.parametrize("fault_with_leftovers", names)
    if "unsupported_fault" in metafunc.fixturenames:
        metafunc.parametrize("unsupported_fault", lacks)


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return the kind of lab under test."""
    return KINDS[request.param]


@pytest.fixture(scope="session")
def lab_kind(kind: Kind, components: Components, request: pytest.FixtureRequest) -> Iterator[LabHandle]:
    """Start one lab of a kind for all tests."""
    lab = kind.start(components, request.config.getoption("contract_nodes") or kind.nodes)
    try:
        lab.prepare()
        yield lab
    finally:
        lab.down()


@pytest.fixture
def lab(lab_kind: LabHandle) -> LabHandle:
    """Return the lab with all its nodes Ready."""
    lab_kind.wait_nodes_ready()
    return lab_kind


@pytest.fixture
def node(lab: LabHandle) -> str:
    """Return the node that a test may fault."""
    return sorted(lab.fleet.node_names())[0]


@pytest.fixture
def machine(lab: LabHandle, node: str) -> Machine:
    """Return the machine of that node."""
    return lab.fleet.machine(node)


@pytest.fixture
def stage(lab: LabHandle, tmp_path: Path) -> Lab:
    """Return the lab as a scenario with one faulted node sees it."""
    return Lab(lab, tmp_path, Needs(faulted=1), nullcontext)


@pytest.fixture
def joined(lab: LabHandle) -> Iterator[str]:
    """Join a node to the running lab, and remove it afterwards."""
    lab.join(JOINED, "zone-a", 8)
    yield JOINED
    if JOINED in lab.fleet.node_names():
        lab.leave(JOINED)


@pytest.fixture
def fault(fault_name: str, machine: Machine) -> Iterator[Fault]:
    """Return every fault of the kind of lab in turn, on that node; it is healed in any case."""
    with healed_at_end(FAULTS[fault_name](machine.name), machine) as fault:
        yield fault
