"""How many slots a run has where nobody says how many."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeproof.session import slots

UNSAID = {
    "lab": "libvirt",
    "nodes": 0,
    "zones": 0,
    "topology": "",
    "numprocesses": None,
    "dist": "no",
    "tx": [],
}
QUIET = {"usepdb": False, "capture": "fd"}


def given(**options: Any) -> Any:
    """A pytest configuration with these options, and those that nobody gave."""
    told = SimpleNamespace(**{**UNSAID, **QUIET, **options})
    return SimpleNamespace(option=told, getoption=lambda name, default=None: getattr(told, name, default))


@pytest.fixture
def borne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "labs_at_once", lambda _kind, _shapes: (2, "two of them"))
    monkeypatch.setattr(slots, "zones_at_once", lambda _kind, _nodes: (6, "six zones"))


@pytest.mark.usefixtures("borne")
def test_virtual_machines_have_as_many_labs_as_the_machine_bears(capsys: pytest.CaptureFixture[str]) -> None:
    config = given()
    slots.set_default(config)
    assert config.option.numprocesses == 2
    assert "2 slots (two of them)" in capsys.readouterr().err


@pytest.mark.usefixtures("borne")
@pytest.mark.parametrize(
    "told",
    [
        {"lab": ""},
        {"lab": "p-0123ab"},
        {"numprocesses": 0},
        {"numprocesses": 3},
        {"tx": ["popen"]},
        {"dist": "each"},
        {"usepdb": True},
        {"capture": "no"},
    ],
)
def test_who_says_something_else_or_looks_on_has_what_he_asked_for(told: dict[str, Any]) -> None:
    config = given(**told)
    slots.set_default(config)
    assert config.option.numprocesses == told.get("numprocesses")


@pytest.mark.usefixtures("borne")
def test_a_worker_starts_none() -> None:
    config = given()
    config.workerinput = {"workerid": "gw0"}
    slots.set_default(config)
    assert config.option.numprocesses is None


def test_one_lab_needs_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "labs_at_once", lambda _kind, _shapes: (1, "no more memory"))
    config = given()
    slots.set_default(config)
    assert config.option.numprocesses is None


@pytest.mark.parametrize("lab", ["libvirt", "process"])
def test_labs_of_a_topology_are_counted_with_its_nodes_and_share_no_zones(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "five.yaml"
    file.write_text("nodes:\n" + "".join(f"  - {{ name: node-{n}, zone: zone-a }}\n" for n in range(5)))
    monkeypatch.setattr(slots, "labs_at_once", lambda _kind, shapes: (len(shapes), "labs of them"))
    assert slots.auto(given(lab=lab, topology=str(file))) == 5
