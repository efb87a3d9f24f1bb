"""Protection of the host's file systems by a lab, in a mount namespace of the test."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.root import become_root
from tests.fakes import executable

_TIMEOUT_S = 20.0
_PROTECT = """
import sys
from pathlib import Path
from nodeproof.labs.base.mounts import protect_host
protect_host(Path(sys.argv[1]))
"""


def protect(own: Path, *commands: str, path: str = os.environ["PATH"]) -> proc.Result:
    """Run commands, protect the host except for `own`, and continue after `protected`."""
    place = f"{shlex.join([sys.executable, '-P', '-c', _PROTECT, str(own)])} || exit 9"
    script = "\n".join(["set -e", *(place if command == "protected" else command for command in commands)])
    argv = [*become_root(), "env", f"PATH={path}", "unshare", "--mount", "--", "bash", "-c", script]
    return proc.run(argv, timeout_s=_TIMEOUT_S, check=False)


def stored(point: Path) -> str:
    """Mount an unlisted kind of file system, in place of fuse.sshfs, cifs, ceph and others."""
    return f"mkdir -p {shlex.quote(str(point))}; mount -t ramfs nodeproof {shlex.quote(str(point))}"


@pytest.mark.parametrize("name", ["plain", "with\ttab, blank and \\"])
def test_file_systems_are_read_only_whatever_their_kind_and_name(tmp_path: Path, name: str) -> None:
    own, other = tmp_path / "own", tmp_path / name
    process = protect(own, stored(own), stored(other), "protected", f"touch {shlex.quote(str(other / 'a'))}")
    assert process.status == 1
    assert "Read-only file system" in process.stderr


def test_lab_folder_stays_writable_with_its_mounts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    process = protect(own, stored(own), stored(own / "logs"), "protected", f"touch {own}/a {own}/logs/a")
    assert process.status == 0, process.stderr


def test_mount_that_stays_writable_is_named(tmp_path: Path) -> None:
    script = 'case "$*" in *remount*) exit 32 ;; esac\nexec /bin/mount "$@"'
    mount = executable(tmp_path / "bin" / "mount", script)
    own, other = tmp_path / "own", tmp_path / "other"
    path = f"{mount.parent}:{os.environ['PATH']}"
    process = protect(own, stored(own), stored(other), "protected", path=path)
    assert process.status == 9
    error = process.stderr.splitlines()[-1]
    assert f"{other} cannot be made read-only" in error
    assert str(own) not in error


def test_hidden_mount_does_not_stop_a_lab(tmp_path: Path) -> None:
    own, above = tmp_path / "own", tmp_path / "above"
    hidden = above / "hidden"
    cover = f"mount -t tmpfs nodeproof {above}; mkdir {hidden}"
    process = protect(own, stored(own), stored(hidden), cover, "protected", f"touch {hidden}/a")
    assert process.status == 0, process.stderr
