"""One build of Kubernetes with all bugs, each inactive until it is selected."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeproof.artifacts.build import Version, Work, build_errors
from nodeproof.artifacts.components import ROLES, recipe_dir, recipe_hash
from nodeproof.cache import Report, cache_dir, load_or_build, work_folder
from nodeproof.catalogue import scenarios_dir
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from tests.sensitivity.bugs import BUG_VARIABLE, Bug, by_file, insert_bugs, selector_file

_MAX_BUILDS = 3
"""Number of builds that are kept, the latest ones."""
_EXECUTABLE = "components"
_SCRIPT = """#!/bin/sh
{chooses}={bug} exec "{folder}/${{0##*/}}" "$@" {flags}
"""
_ROLES_OF = {
    "kubelet": ("kubelet", "hollow-kubelet"),
    "cloud-controller-manager": ("cloud-controller-manager", "kube-controller-manager"),
}
"""Executables of a component that do not have its name, or must be the same file as another one: this shows
that a program of ours is built from the tree.
"""


def build(bugs: Sequence[Bug], report: Report) -> Path:
    """Return the folder of executables with these bugs, cached or built now. Raises Problem and BadBug."""
    version = Version.parse(DEFAULT_KUBERNETES_VERSION)
    entry = cache_dir() / "components-with-bugs" / _key(bugs, version)
    load_or_build(
        entry,
        lambda folder: folder if folder.is_dir() else None,
        lambda: _build(bugs, version, entry, report),
        "another process is building",
        report,
    )
    entry.touch()
    _prune(entry.parent)
    return entry


def digest_of(recipe: str, bug: Bug) -> str:
    """Return a hash of a try's inputs: the build's recipe, the bug, and its scenario.

    Other bugs in the executables do not matter.
    """
    scenario = (scenarios_dir() / bug.scenario).read_bytes()
    return hashlib.sha256(f"{recipe}\0{bug!r}\0".encode() + scenario).hexdigest()[:12]


def recipe() -> str:
    """Return the hash of the recipe that Kubernetes is built by, without bugs."""
    return recipe_hash(recipe_dir(), str(Version.parse(DEFAULT_KUBERNETES_VERSION)))


def _key(bugs: Sequence[Bug], version: Version) -> str:
    digest = hashlib.sha256(recipe_hash(recipe_dir(), str(version)).encode())
    for bug in bugs:
        if bug.edits:
            digest.update(repr(bug.edits).encode())
    return digest.hexdigest()[:12]


def _build(bugs: Sequence[Bug], version: Version, entry: Path, report: Report) -> None:
    errors = build_errors(f"Kubernetes {version}", entry, lambda: "correct the bugs")
    with errors, work_folder(entry) as folder:
        work = Work(folder, version, report)
        work.copy_recipe(recipe_dir())
        work.override_sources(lambda files: _insert_bugs(bugs, files), tuple(by_file(bugs)))
        fresh = folder / "entry"
        work.compile(fresh / _EXECUTABLE)
        for role in ROLES:
            (fresh / role).symlink_to(_EXECUTABLE)


def _insert_bugs(bugs: Sequence[Bug], files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with their bugs, and beside each the file that reads the selected bug."""
    edits = by_file(bugs)
    texts = {name: insert_bugs(source, edits[name]) for name, source in files.items()}
    selectors = {_selector_path(name): selector_file(source) for name, source in files.items()}
    return texts | selectors


def _selector_path(name: str) -> str:
    return f"{name.rpartition('/')[0]}/nodeproof_bug.go"


def _prune(folder: Path) -> None:
    entries = [path for path in folder.glob("[!.]*") if path.is_dir()]
    entries.sort(key=lambda path: path.stat().st_mtime)
    for path in entries[:-_MAX_BUILDS]:
        shutil.rmtree(path, ignore_errors=True)


def write_executables(executables: Path, bug: Bug, folder: Path) -> None:
    """Write executables of which one component has a bug."""
    roles = _ROLES_OF.get(bug.of, (bug.of,))
    script = _SCRIPT.format(chooses=BUG_VARIABLE, bug=bug.name, folder=executables, flags=" ".join(bug.flags))
    folder.mkdir(parents=True)
    for role in ROLES:
        if role not in roles:
            (folder / role).symlink_to(executables / role)
            continue
        (folder / role).write_text(script)
        (folder / role).chmod(0o755)
