"""Suggested fixes: in a clone and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.hints import BASE, BOX, MACHINES, VAGRANT, Hint, hint_for


@pytest.mark.parametrize("what", [BASE, BOX, MACHINES, VAGRANT])
def test_missing_setup_file_is_not_suggested(what: Hint, tmp_path: Path) -> None:
    assert hint_for(what).startswith("run `")
    assert "setup" not in hint_for(what, tmp_path)


def test_installed_package_names_its_extra(tmp_path: Path) -> None:
    assert "pip install 'nodeproof[libvirt]'" in hint_for(MACHINES, tmp_path)
