"""What volumes need besides Kubernetes: the driver of `infra/csi`, and upstream's programs that speak to it.

The programs are built from the Go module beside the driver and kept under
`${XDG_CACHE_HOME:-~/.cache}/nodeproof/csi/<recipe>/`. Nothing is built before somebody asks: a lab without
volumes needs none of it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import components
from nodeproof.artifacts.build import Packages, explained, recipe_files
from nodeproof.artifacts.entry import entry_made, work_folder
from nodeproof.artifacts.go import find_go, go_environment, go_that_builds, wanted_go
from nodeproof.kept import Report, cache_dir
from nodeproof.model.problem import Problem

__all__ = ["ATTACHER", "SANITY", "entry", "obtain", "python_path", "recipe_dir"]

ATTACHER, SANITY = "external-attacher", "csi-sanity"

_UPSTREAM: Mapping[str, str] = {
    ATTACHER: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
    SANITY: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
}
"""Each program's package of Go."""
_VERSIONS = (("version", "external-attacher/v4"), ("VERSION", "csi-test/v5"))
"""The variable of its main package in which a program keeps its version, and the module that has it."""
_WHAT = "external-attacher and csi-sanity"
_BUILD_LIMIT_S = 1800.0


def obtain(report: Report = lambda _line: None) -> Path:
    """The folder with `external-attacher` and `csi-sanity`: from the cache, else built now (some minutes).

    `report` gets lines about slow steps. Raises Problem.
    """
    recipe, made = recipe_dir(), entry()
    return entry_made(
        made, _load, lambda: _build(recipe, made, report), "another process is building", report
    )


def entry() -> Path:
    """Where they are kept, once there are any: a lab is told before it has volumes. Raises Problem."""
    recipe = recipe_dir()
    return cache_dir() / "csi" / _recipe_hash(recipe)


def python_path() -> Path:
    """The folder from which Python imports the driver, `infra.csi`. Raises Problem."""
    return recipe_dir().parents[1]


def recipe_dir() -> Path:
    """The folder with driver and Go module: in a checkout, else in the installed package. Raises Problem."""
    here = Path(__file__).resolve()
    candidates = (here.parents[3] / "infra" / "csi", here.parents[1] / "_data" / "infra" / "csi")
    for candidate in candidates:
        if (candidate / "go.mod").is_file():
            return candidate
    raise Problem(
        "the CSI driver and its programs' recipe are missing",
        str(candidates[1]),
        "install nodeproof again, or run it from a checkout",
    )


def _recipe_hash(recipe: Path) -> str:
    """12 hex digits over everything that decides what a build gives."""
    decided = (go_that_builds(components.recipe_dir()), *_flags(recipe), *_UPSTREAM.values())
    digest = hashlib.sha256(" ".join(decided).encode())
    for file in recipe_files(recipe):
        digest.update(f"\0{file.relative_to(recipe)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _flags(recipe: Path) -> tuple[str, ...]:
    go_mod = (recipe / "go.mod").read_text()
    stamps = []
    for variable, module in _VERSIONS:
        found = re.search(rf"^\s+github\.com/kubernetes-csi/{module} (v\S+)", go_mod, re.MULTILINE)
        stamps += [f"-X main.{variable}={found[1]}"] if found else []
    return ("-trimpath", "-buildvcs=false", "-ldflags", " ".join(("-s -w", *stamps)))


def _load(entry: Path) -> Path | None:
    """An entry of the cache, which is there only where it is whole."""
    return entry if all(os.access(entry / name, os.X_OK) for name in _UPSTREAM) else None


def _build(recipe: Path, entry: Path, report: Report) -> None:
    """Make a cache entry, whole or not at all. The caller holds the entry's lock. Raises Problem."""
    report(f"building {_WHAT}: up to three minutes the first time, later runs take them from {entry}")
    # The Go that is pinned for Kubernetes, so that there is one Go.
    go = find_go(wanted_go((recipe / "go.mod").read_text()), components.recipe_dir(), report)
    with explained(_WHAT, entry, "try again: finished packages are kept"), work_folder(entry) as folder:
        (folder / "entry").mkdir()
        for name, package in _UPSTREAM.items():
            packages = Packages(f"compiling {name}: {{}} packages", 0, report)
            argv = [go, "build", "-v", *_flags(recipe), "-o", str(folder / "entry" / name), package]
            proc.stream_lines(argv, packages, timeout_s=_BUILD_LIMIT_S, cwd=recipe, env=go_environment())
