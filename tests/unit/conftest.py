"""Settings of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.unit.ssh_server import Hosts, serving_hosts

# The duration of an example depends on the load of the machine.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Serve SSH as a node and as a jump host."""
    with serving_hosts(tmp_path) as served:
        yield served
