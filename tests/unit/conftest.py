"""Settings of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nodeproof import cli
from tests.small_server import Page, serving
from tests.unit.in_process import Call, Output
from tests.unit.ssh_server import Hosts, serving_hosts

# The duration of an example depends on the load of the machine.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Serve SSH as a node and as a jump host."""
    with serving_hosts(tmp_path) as served:
        yield served


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return `call(*arguments)`, which runs a command of nodeproof in this process."""

    def run(*arguments: str) -> Output:
        status = cli.main(arguments)
        return Output(status, *capsys.readouterr())

    return run


@pytest.fixture
def page() -> Iterator[Page]:
    """Serve a page whose next answers the test chooses."""
    with serving(Page()) as page:
        yield page


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache of nodeproof, which is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nodeproof"
