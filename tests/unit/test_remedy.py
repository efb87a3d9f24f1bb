"""What a user is told to do: what is there in a clone, and what is there where nodeproof was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.remedy import BASE, MACHINES, VAGRANT, Remedy, remedy


@pytest.mark.parametrize("what", [BASE, MACHINES, VAGRANT])
def test_nobody_is_sent_to_a_file_that_is_not_there(what: Remedy, tmp_path: Path) -> None:
    assert remedy(what).startswith("run `")
    assert "setup" not in remedy(what, tmp_path)


def test_an_installed_package_names_its_extra(tmp_path: Path) -> None:
    assert "pip install 'nodeproof[libvirt]'" in remedy(MACHINES, tmp_path)
