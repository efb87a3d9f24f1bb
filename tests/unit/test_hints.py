"""Shipped files and suggested fixes: in a clone and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof import hints
from nodeproof.hints import BASE, BOX, MACHINES, VAGRANT, Hint, hint_for, shipped
from nodeproof.model.problem import Problem


@pytest.mark.parametrize("what", [BASE, BOX, MACHINES, VAGRANT])
def test_missing_setup_file_is_not_suggested(what: Hint, tmp_path: Path) -> None:
    assert hint_for(what).startswith("run `")
    assert "setup" not in hint_for(what, tmp_path)


def test_installed_package_names_its_extra(tmp_path: Path) -> None:
    assert "pip install 'nodeproof[libvirt]'" in hint_for(MACHINES, tmp_path)


def test_shipped_file_is_found_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, schema = tmp_path / "site" / "nodeproof", "scenarios/claims.schema.json"
    assert shipped(schema).is_file()
    monkeypatch.setattr(hints, "_TOP", tmp_path)
    monkeypatch.setattr(hints, "__file__", str(package / "hints.py"))
    with pytest.raises(Problem, match="is missing"):
        shipped(schema)
    (package / "_data" / "scenarios").mkdir(parents=True)
    (package / "_data" / schema).touch()
    assert shipped(schema) == package / "_data" / schema
