"""`-m machine`: what only virtual machines prove."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.session import asked


class Collected:
    """Keeps the scenarios that pytest found."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def collect(*arguments: str) -> list[pytest.Item]:
    found = Collected()
    given = ["--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    assert pytest.main(given, plugins=[found]) == 0
    return found.items


@pytest.fixture
def shutdown() -> str:
    return str(scenarios_dir() / "shutdown")


def test_it_chooses_what_a_process_lab_has_not(shutdown: str) -> None:
    chosen, all_of_them = collect("-m", "machine", shutdown), collect(shutdown)
    lacking = [item.nodeid for item in all_of_them if asked.lacks_features(item, PROCESS.features)]
    assert [item.nodeid for item in chosen] == lacking
    assert 0 < len(lacking) < len(all_of_them)
    assert not any(asked.lacks_features(item, LIBVIRT.features) for item in chosen)


@pytest.mark.parametrize(
    ("claims", "needed", "is_for_machines"),
    [
        (True, {"features": ("systemd",)}, True),
        (True, {"features": ("power",)}, False),
        (False, {"features": ("systemd",)}, False),
        (True, {"features": ("wings",)}, False),
    ],
)
def test_what_is_no_scenario_or_asks_for_what_nobody_has_is_left_alone(
    claims: bool, needed: dict[str, Any], is_for_machines: bool
) -> None:
    marks = {"claims": pytest.mark.claims("a.b").mark} if claims else {}
    marks["needs"] = pytest.mark.needs(**needed).mark

    class Item:
        nodeid = "test_it.py::test_it"

        def get_closest_marker(self, name: str) -> pytest.Mark | None:
            return marks.get(name)

    item: Any = Item()
    assert asked.needs_machine(item) is is_for_machines
