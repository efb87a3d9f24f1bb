"""Set-up on a machine whose cache is empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import proc
from tests.acceptance.command import TOP

SET_UP_LIMIT_S = 300.0
SSHD = Path("/usr/sbin/sshd")


@pytest.mark.skipif(SSHD.exists(), reason=f"{SSHD} is installed, so none is unpacked")
def test_an_empty_cache_is_filled_once(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    argv = [str(TOP / "infra" / "setup.sh")]
    first = proc.run(argv, timeout_s=SET_UP_LIMIT_S, env=environment)
    unpacked = tmp_path / "nodeproof" / "sshd" / "usr" / "sbin" / "sshd"
    assert "unpacking sshd" in first.stderr
    assert os.access(unpacked, os.X_OK)
    assert [path.name for path in (tmp_path / "nodeproof").iterdir()] == ["sshd"]

    again = proc.run(argv, timeout_s=SET_UP_LIMIT_S, env=environment)
    assert (again.stdout, again.stderr) == ("", "")
