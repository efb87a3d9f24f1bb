"""A lab of virtual machines, and what runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeproof.artifacts.components import DEFAULT_KUBERNETES_VERSION, obtain
from nodeproof.labs.client import starting
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds import LIBVIRT
from tests.acceptance.altered import Alteration, Ended, run_scenarios
from tests.vm.altering import FELL, deviating

Run = Callable[..., Ended]
NODES = 2


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ledgers of these tests are no business of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """One lab of virtual machines in `fast`; `--components DIR` where the executables are not to be built."""
    components = obtain(request.config.getoption("components"), DEFAULT_KUBERNETES_VERSION, print)
    asked = starting.Request(starting.new_name(), NODES, 1, "fast", False, LIBVIRT.name)
    lab = starting.up(asked, components, print)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    """The lab with its nodes Ready."""
    shared_lab.wait_nodes_ready()
    return shared_lab


@pytest.fixture
def claims(request: pytest.FixtureRequest) -> frozenset[str]:
    """The claims that fall in a test, by its marker `falls`."""
    return frozenset(request.node.get_closest_marker("falls").args)


@pytest.fixture
def run(tmp_path: Path, record_property: Callable[[str, object], None]) -> Run:
    """`run(lab, alteration, *arguments)`: scenarios on an altered cluster; the report has what fell."""

    def run_on(lab: Lab, alter: Alteration, *arguments: str) -> Ended:
        ended = run_scenarios(lab, tmp_path / "run", alter, *arguments)
        record_property(FELL, sorted(deviating(ended)))
        return ended

    return run_on
