"""What a lab makes of its host's file systems, tried in a mount namespace of its own."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.root import become_root

_LIMIT_S = 20.0
_PROTECT = """
import sys
from pathlib import Path
from nodeproof.labs.ground.read_only import protect_host
protect_host(Path(sys.argv[1]))
"""


def protect(own: Path, *commands: str, path: str = os.environ["PATH"]) -> proc.Result:
    """Run commands, protect the host from there on but for `own`, and go on after `protected`."""
    place = f"{shlex.join([sys.executable, '-P', '-c', _PROTECT, str(own)])} || exit 9"
    script = "\n".join(["set -e", *(place if command == "protected" else command for command in commands)])
    argv = [*become_root(), "env", f"PATH={path}", "unshare", "--mount", "--", "bash", "-c", script]
    return proc.run(argv, timeout_s=_LIMIT_S, check=False)


def stored(point: Path) -> str:
    """Mounts a kind of file system that nobody names: it stands for fuse.sshfs, cifs, ceph and the others."""
    return f"mkdir -p {shlex.quote(str(point))}; mount -t ramfs nodeproof {shlex.quote(str(point))}"


@pytest.mark.parametrize("name", ["plain", "with\ttab, blank and \\"])
def test_what_stores_files_is_read_only_whatever_its_kind_and_name(tmp_path: Path, name: str) -> None:
    own, other = tmp_path / "own", tmp_path / name
    done = protect(own, stored(own), stored(other), "protected", f"touch {shlex.quote(str(other / 'a'))}")
    assert done.status == 1
    assert "Read-only file system" in done.stderr


def test_the_labs_own_folder_stays_writable_with_all_that_is_mounted_in_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    done = protect(own, stored(own), stored(own / "logs"), "protected", f"touch {own}/a {own}/logs/a")
    assert done.status == 0, done.stderr


def test_what_stays_writable_is_named(tmp_path: Path) -> None:
    mount = tmp_path / "bin" / "mount"
    mount.parent.mkdir()
    mount.write_text('#!/bin/sh\ncase "$*" in *remount*) exit 32 ;; esac\nexec /bin/mount "$@"\n')
    mount.chmod(0o755)
    own, other = tmp_path / "own", tmp_path / "other"
    path = f"{mount.parent}:{os.environ['PATH']}"
    done = protect(own, stored(own), stored(other), "protected", path=path)
    assert done.status == 9
    said = done.stderr.splitlines()[-1]
    assert f"{other} cannot be made read-only" in said
    assert str(own) not in said


def test_what_is_hidden_below_another_mount_stops_no_lab(tmp_path: Path) -> None:
    own, above = tmp_path / "own", tmp_path / "above"
    hidden = above / "hidden"
    cover = f"mount -t tmpfs nodeproof {above}; mkdir {hidden}"
    done = protect(own, stored(own), stored(hidden), cover, "protected", f"touch {hidden}/a")
    assert done.status == 0, done.stderr
