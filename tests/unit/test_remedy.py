"""What a user is told to do: what is there in a clone, and what is there where nodeproof was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.labs.remedy import remedy


@pytest.mark.parametrize("what", ["process", "libvirt", "vagrant"])
def test_nobody_is_sent_to_a_file_that_is_not_there(what: str, tmp_path: Path) -> None:
    assert remedy(what).startswith("run `")
    assert "setup" not in remedy(what, tmp_path)


def test_an_installed_package_names_its_extra(tmp_path: Path) -> None:
    assert "pip install 'nodeproof[libvirt]'" in remedy("libvirt", tmp_path)
