"""Set-up on a machine whose cache is empty."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nodeproof import proc
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
    kept = sorted(path.name for path in (tmp_path / "nodeproof").iterdir())
    assert kept == [".sshd-compared", "sshd", unpacked.resolve().parents[2].name]

    again = proc.run(argv, timeout_s=SET_UP_LIMIT_S, env=environment)
    assert (again.stdout, again.stderr) == ("", "")


@pytest.mark.skipif(SSHD.exists(), reason=f"{SSHD} is installed, so none is unpacked")
def test_an_sshd_that_is_not_the_newest_is_replaced_and_stays_for_labs_that_run(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "nodeproof"
    old = cache / "sshd-1:0.1" / "usr" / "sbin" / "sshd"
    executable(old, "exit 1")
    (cache / "sshd").symlink_to("sshd-1:0.1")
    done = proc.run([str(TOP / "infra" / "setup.sh")], timeout_s=SET_UP_LIMIT_S, env=environment)
    assert "unpacking sshd" in done.stderr
    assert (cache / "sshd").resolve() != old.parents[2]
    assert old.exists()


def executable(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


def test_what_was_installed_from_an_older_lock_is_installed_again(tmp_path: Path) -> None:
    """In a copy whose Python and pip only write down what they are asked for, with all OS packages there."""
    calls, top = tmp_path / "calls", tmp_path / "top"
    shutil.copytree(TOP / "infra", top / "infra", ignore=shutil.ignore_patterns("node_modules"))
    for name in ("pyproject.toml", "requirements.lock", "requirements-libvirt.lock"):
        shutil.copy(TOP / name, top / name)
    for name in ("pip", "python"):
        executable(top / ".venv" / "bin" / name, f'echo "$@" >> {calls}')
    executable(tmp_path / "path" / "dpkg-query", "echo install ok installed")
    environment = {**os.environ, "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    executable(tmp_path / "nodeproof" / "sshd" / "usr" / "sbin" / "sshd", "exit 1")
    (tmp_path / "nodeproof" / ".sshd-compared").touch()

    def installed(*arguments: str) -> list[str]:
        """The locks that are installed from."""
        calls.write_text("")
        proc.run([str(top / "infra" / "setup.sh"), *arguments], timeout_s=SET_UP_LIMIT_S, env=environment)
        return [
            name
            for name in ("requirements.lock", "requirements-libvirt.lock")
            if f"/{name}" in calls.read_text()
        ]

    assert installed() == ["requirements.lock"]
    assert installed() == []
    assert "requirements-libvirt.lock" in installed("libvirt")
    assert installed("libvirt") == []
    lock = top / "requirements-libvirt.lock"
    lock.write_text(lock.read_text().replace("==", "==1"))
    assert installed() == []
    assert "requirements-libvirt.lock" in installed("libvirt")
