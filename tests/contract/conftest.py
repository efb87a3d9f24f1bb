"""A started lab of each kind, and the node that tests harm."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nodeproof.artifacts.components import DEFAULT_KUBERNETES_VERSION, Components, obtain
from nodeproof.faults import FAULTS as REGISTERED
from nodeproof.faults import Fault, Registered
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds import PROCESS, kind_named
from nodeproof.machines.machine import Machine
from nodeproof.safety.injector import HEAL_LIMIT_S
from tests.contract.kinds import FAULTS, KINDS, Kind
from tests.waiting import eventually

JOINED = "node-9"
"""The node that joins in the middle of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which kind of lab is tried, and how large."""
    group = parser.getgroup("contract", "the same tests for every kind of lab")
    default = os.environ.get("NODEPROOF_CONTRACT_LAB", PROCESS.name)
    group.addoption("--contract-lab", default=default, choices=list(KINDS), help="kind of lab to try")
    group.addoption(
        "--contract-nodes", type=int, default=0, help="nodes of the lab (default: as the kind has it)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name every test after the kind of lab that it tries, and after the fault."""
    chosen = metafunc.config.getoption("contract_lab")
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", [chosen], indirect=True, scope="session")
    lacks = KINDS[chosen].lacks
    if "fault_name" in metafunc.fixturenames:
        metafunc.parametrize("fault_name", [name for name in FAULTS if name not in lacks])
    if "undone_inside" in metafunc.fixturenames:
        has = "systemd" in kind_named(chosen).features
        names = [name for name, make in FAULTS.items() if has and make("node").undo]
        metafunc.parametrize("undone_inside", names)
    if "traced" in metafunc.fixturenames:
        found = {entry.name for entry in REGISTERED if entry.found_on is not Registered.found_on}
        names = [name for name, make in FAULTS.items() if make("node").name in found and name not in lacks]
        metafunc.parametrize("traced", names)
    if "lacked_fault" in metafunc.fixturenames:
        metafunc.parametrize("lacked_fault", lacks)


@pytest.fixture(scope="session")
def components(request: pytest.FixtureRequest) -> Components:
    """The executables under test; `--components DIR` where they are not to be built."""
    return obtain(request.config.getoption("components"), DEFAULT_KUBERNETES_VERSION, print)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ledgers of these tests are no business of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of lab that is tried."""
    return KINDS[request.param]


@pytest.fixture(scope="session")
def lab_kind(kind: Kind, components: Components, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One started lab of a kind, for all tests."""
    lab = kind.start(components, request.config.getoption("contract_nodes") or kind.nodes)
    try:
        lab.prepare()
        yield lab
    finally:
        lab.down()


@pytest.fixture
def lab(lab_kind: Lab) -> Lab:
    """The lab with all its nodes Ready."""
    lab_kind.wait_nodes_ready()
    return lab_kind


@pytest.fixture
def node(lab: Lab) -> str:
    """The node that a test may harm."""
    return sorted(lab.fleet.node_names())[0]


@pytest.fixture
def machine(lab: Lab, node: str) -> Machine:
    """That node as a computer."""
    return lab.fleet.machine(node)


@pytest.fixture
def joined(lab: Lab) -> Iterator[str]:
    """A node that joined the running lab, and leaves it."""
    lab.join(JOINED, "zone-a", 8)
    yield JOINED
    if JOINED in lab.fleet.node_names():
        lab.leave(JOINED)


@pytest.fixture
def fault(fault_name: str, machine: Machine) -> Iterator[Fault]:
    """Every fault that the kind of lab can have in turn, on that node; healed whatever the test does."""
    made = FAULTS[fault_name](machine.name)
    yield made
    made.heal(machine)
    assert eventually(lambda: made.is_healed(machine), HEAL_LIMIT_S)
