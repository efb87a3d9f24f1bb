"""Which lab a command means when nobody names one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeproof.labs.client import registry
from nodeproof.model.problem import Problem
from nodeproof.session.options import resolve


@dataclass(frozen=True)
class Started:
    """What a lab was started as."""

    keep: bool


@pytest.mark.parametrize(
    ("labs", "name", "meant"),
    [
        ({"p-1": False}, None, "p-1"),
        ({"p-1": True, "p-2": False, "p-3": False}, None, "p-1"),
        ({"p-1": True, "p-2": False}, "p-2", "p-2"),
    ],
)
def test_the_lab_that_a_person_started_is_meant(
    monkeypatch: pytest.MonkeyPatch, labs: dict[str, bool], name: str | None, meant: str
) -> None:
    monkeypatch.setattr(registry, "running", lambda: list(labs))
    monkeypatch.setattr(registry, "spec_of", lambda lab: Started(labs[lab]))
    assert registry.the_lab(name) == meant


@pytest.mark.parametrize(
    ("labs", "name", "said"),
    [
        ({}, None, "no lab is up"),
        ({"p-1": True, "p-2": True}, None, "2 labs are up: p-1, p-2"),
        ({"p-1": False, "p-2": False}, None, "2 labs are up: p-1, p-2"),
        ({"p-1": True}, "p-9", "no lab 'p-9'; 1 labs are up: p-1"),
    ],
)
def test_what_is_not_clear_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, labs: dict[str, bool], name: str | None, said: str
) -> None:
    monkeypatch.setattr(registry, "running", lambda: list(labs))
    monkeypatch.setattr(registry, "spec_of", lambda lab: Started(labs[lab]))
    with pytest.raises(Problem, match=said):
        registry.the_lab(name)


@pytest.mark.parametrize(
    "written", ['{"lab": "p-000001", "from_another_version": 1, "nodes": []}', "{", "{}"]
)
def test_a_lab_that_another_version_started_is_said_to_be_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    (tmp_path / "p-000001").mkdir()
    (tmp_path / "p-000001" / "spec.json").write_text(written)
    monkeypatch.setattr(registry, "RUNTIME_ROOT", tmp_path)
    with pytest.raises(Problem, match="another version of nodeproof") as said:
        registry.attach("p-000001")
    assert said.value.line.endswith("nodeproof down --lab-name p-000001")


@pytest.mark.parametrize("lab", ["/some/path", "p-000000/zone", "vmware", "p-000000/"])
def test_an_unknown_lab_is_quoted_as_it_was_asked_for(monkeypatch: pytest.MonkeyPatch, lab: str) -> None:
    monkeypatch.setattr(registry, "running", lambda: ["p-000001"])
    with pytest.raises(Problem, match=f"unknown lab '{lab}' .* or a running lab \\(p-000001\\)"):
        resolve(lab, "", "", "build", (), 0, 0, 0, ())
