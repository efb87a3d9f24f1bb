"""The installer of a bundle: what it refuses, and how it fills the cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nodeproof import bundle, proc
from tests.fakes import executable

TIMEOUT_S = 60.0


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Make a bundle with one part, for this Python, in which pip has nothing to do."""
    folder = tmp_path / "bundle"
    part = folder / "cache" / "components" / "v1"
    part.mkdir(parents=True)
    (part / "file").write_text("new")
    (folder / "parts").write_text("components/v1\n")
    (folder / "platform").write_text(f"{bundle._platform()}\n")
    # As `python -m venv` does, it leaves an environment with a pip.
    executable(
        tmp_path / "python",
        f'[ "$1" = -m ] || exec {sys.executable} "$@"\n'
        'mkdir -p "$3/bin" && printf "#!/bin/sh\\n" >"$3/bin/pip" && chmod +x "$3/bin/pip"',
    )
    (folder / bundle._INSTALLER.name).symlink_to(bundle._INSTALLER)
    return folder


def installed(unpacked: Path) -> proc.Result:
    top = unpacked.parent
    environment = {**os.environ, "PYTHON": str(top / "python"), "XDG_CACHE_HOME": str(top / "home")}
    argv = [str(unpacked / bundle._INSTALLER.name), str(top / "venv")]
    return proc.run(argv, timeout_s=TIMEOUT_S, cwd=top, env=environment, check=False)


def test_new_part_is_copied_and_an_old_one_stays(unpacked: Path) -> None:
    part = unpacked.parent / "home" / "nodeproof" / "components" / "v1"
    assert installed(unpacked).status == 0
    assert [path.read_text() for path in part.iterdir()] == ["new"]
    (part / "file").write_text("in use")
    assert installed(unpacked).status == 0
    assert [path.read_text() for path in part.iterdir()] == ["in use"]
    assert [path.name for path in part.parent.iterdir()] == ["v1"]


def test_bundle_for_another_python_is_refused(unpacked: Path) -> None:
    (unpacked / "platform").write_text("linux-sparc Python 3.11\n")
    process = installed(unpacked)
    assert process.status == 2
    assert f"the bundle is for linux-sparc Python 3.11, not for {bundle._platform()}" in process.stderr
    assert not (unpacked.parent / "home").exists()
