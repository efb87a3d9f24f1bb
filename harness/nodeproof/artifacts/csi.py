"""The programs for volumes besides Kubernetes: the driver of `infra/csi`, and upstream's that use it.

The latter are built from the Go module beside the driver and stored under
`${XDG_CACHE_HOME:-~/.cache}/nodeproof/csi/<recipe>/`. They are built on demand only: a lab without volumes
needs none of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import components
from nodeproof.artifacts.build import Packages, build_errors, build_go_version, go_environment, inputs_hash
from nodeproof.cache import Report, cache_dir, load_or_build, work_folder
from nodeproof.hints import shipped

ATTACHER, SANITY = "external-attacher", "csi-sanity"

_UPSTREAM: Mapping[str, str] = {
    ATTACHER: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
    SANITY: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
}
"""The Go package of each program."""
_VERSIONS = (("version", "external-attacher/v4"), ("VERSION", "csi-test/v5"))
"""The variable of a main package that contains its version, and the module that the version is from."""
_SUBJECT = "external-attacher and csi-sanity"
_BUILD_TIMEOUT_S = 1800.0


def obtain(report: Report = lambda _line: None) -> Path:
    """Return the folder with `external-attacher` and `csi-sanity`, cached or built now (some minutes).

    `report` is called with messages about slow steps. Raises Problem.
    """
    entry = entry_path()
    return load_or_build(entry, _load, partial(_build, entry, report), "another process is building", report)


def entry_path() -> Path:
    """Return the path of their cache entry, whether it exists or not: labs start before it is built.

    Raises Problem.
    """
    recipe = recipe_dir()
    inputs = (build_go_version(components.recipe_dir()), *_flags(recipe), *_UPSTREAM.values())
    return cache_dir() / "csi" / inputs_hash(recipe, inputs)


def python_path() -> Path:
    """Return the folder from which Python imports the driver, `infra.csi`. Raises Problem."""
    return recipe_dir().parents[1]


def recipe_dir() -> Path:
    """Return the folder of driver and Go module, in a checkout or the installed package. Raises Problem."""
    return shipped("infra/csi/go.mod").parent


def _flags(recipe: Path) -> tuple[str, ...]:
    go_mod = (recipe / "go.mod").read_text()
    stamps = []
    for variable, module in _VERSIONS:
        match = re.search(rf"^\s+github\.com/kubernetes-csi/{module} (v\S+)", go_mod, re.MULTILINE)
        stamps += [f"-X main.{variable}={match[1]}"] if match else []
    return ("-trimpath", "-buildvcs=false", "-ldflags", " ".join(("-s -w", *stamps)))


def _load(entry: Path) -> Path | None:
    """Return a cache entry if it is complete."""
    return entry if all(os.access(entry / name, os.X_OK) for name in _UPSTREAM) else None


def _build(entry: Path, report: Report) -> None:
    """Make a cache entry, completely or not at all. The caller holds its lock. Raises Problem."""
    report(f"building {_SUBJECT}: up to three minutes the first time, later runs take them from {entry}")
    recipe = recipe_dir()
    go = components.go_for(recipe, report)
    with (
        build_errors(_SUBJECT, entry, lambda: "try again: finished packages are kept"),
        work_folder(entry) as folder,
    ):
        (folder / "entry").mkdir()
        for name, package in _UPSTREAM.items():
            packages = Packages(f"compiling {name}: {{}} packages", 0, report)
            argv = [go, "build", "-v", *_flags(recipe), "-o", str(folder / "entry" / name), package]
            proc.stream_lines(argv, packages, timeout_s=_BUILD_TIMEOUT_S, cwd=recipe, env=go_environment())
