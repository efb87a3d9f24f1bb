"""What a killed start of root leaves keeps no other user from starting, ending and healing labs."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.client import registry
from nodeproof.model.problem import Problem

SWEEPS = """
import os, pathlib, sys
from nodeproof.labs.client import registry
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
registry.RUNTIME_ROOT = pathlib.Path(sys.argv[1])
print(registry.sweep(), [path.name for path in registry.unswept()], registry.running())
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of labs that every user may list, with what a start left that was killed a minute ago."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    (root / ".p-abc123").mkdir(mode=0o700)
    (root / ".p-abc123" / "lock").touch(mode=0o600)
    os.utime(root / ".p-abc123", (time.time() - 60,) * 2)
    monkeypatch.setattr(registry, "RUNTIME_ROOT", root)
    yield root
    shutil.rmtree(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_goes_on_and_is_told_what_root_has_to_remove(runtime: Path) -> None:
    """Also where the state folder of the environment is still root's."""
    done = proc.run([sys.executable, "-B", "-c", SWEEPS, str(runtime)], timeout_s=60)
    assert done.stdout == "[] ['.p-abc123'] []\n"
    assert (runtime / ".p-abc123").exists()


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("has_lock", [True, False])
def test_root_is_asked_whether_a_lock_is_held(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool, has_lock: bool
) -> None:
    """Of a folder that the caller may not look into; as if by sudo."""
    lock = runtime / ".p-abc123" / "lock"
    really = os.open

    def refused(path: Path, flags: int) -> int:
        raise PermissionError(path)

    monkeypatch.setattr(registry, "become_root", lambda: [])
    monkeypatch.setattr(registry, "root_prefix", lambda: [])
    descriptor = really(lock, os.O_RDONLY)
    try:
        if is_held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not has_lock:
            lock.unlink()
            os.utime(lock.parent, (time.time() - 60,) * 2)
        with monkeypatch.context() as patch:
            patch.setattr("nodeproof.labs.client.registry.os.open", refused)
            held = registry._is_held(lock.parent)
        assert held == (is_held and has_lock)
    finally:
        os.close(descriptor)


def test_who_cannot_become_root_leaves_it(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[str]:
        raise Problem("a lab needs root and there is no sudo", "process lab", "run as root")

    monkeypatch.setattr(registry, "become_root", refuse)
    assert registry._is_held_for_root(runtime / ".p-abc123" / "lock")


def test_a_folder_that_gets_its_name_meanwhile_is_too_young(runtime: Path) -> None:
    shutil.rmtree(runtime / ".p-abc123")
    assert registry._age_s(runtime / ".p-abc123") == 0
    assert registry.sweep() == []
    assert registry.unswept() == []
