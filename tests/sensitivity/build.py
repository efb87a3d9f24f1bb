"""One build of Kubernetes that has all bugs in it, and none as long as nobody chooses one."""

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
from tests.sensitivity.bugs import CHOOSES, Bug, altered, by_file, chooser

_MAX_BUILDS = 3
"""So many builds, the last ones."""
_EXECUTABLE = "components"
_SCRIPT = """#!/bin/sh
{chooses}={bug} exec "{folder}/${{0##*/}}" "$@" {flags}
"""
_ROLES_OF = {
    "kubelet": ("kubelet", "hollow-kubelet"),
    "cloud-controller-manager": ("cloud-controller-manager", "kube-controller-manager"),
}
"""Which executables are a component, where that is not the one of its name, or have to be one file with it:
by that a program of ours is known to be of the tree.
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
    _forget(entry.parent)
    return entry


def digest_of(recipe: str, bug: Bug) -> str:
    """Return a hash of what a try is made of: the build's recipe, the bug, and the scenario to catch it.

    Other bugs beside it in its executables do not matter.
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
        work.override_sources(lambda files: _altered(bugs, files), tuple(by_file(bugs)))
        fresh = folder / "entry"
        work.compile(fresh / _EXECUTABLE)
        for role in ROLES:
            (fresh / role).symlink_to(_EXECUTABLE)


def _altered(bugs: Sequence[Bug], files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with their bugs, and beside each what lets its package ask which was chosen."""
    edits = by_file(bugs)
    texts = {name: altered(source, edits[name]) for name, source in files.items()}
    asking = {_beside(name): chooser(source) for name, source in files.items()}
    return texts | asking


def _beside(name: str) -> str:
    return f"{name.rpartition('/')[0]}/nodeproof_bug.go"


def _forget(folder: Path) -> None:
    entries = [path for path in folder.glob("[!.]*") if path.is_dir()]
    entries.sort(key=lambda path: path.stat().st_mtime)
    for path in entries[:-_MAX_BUILDS]:
        shutil.rmtree(path, ignore_errors=True)


def with_bug(executables: Path, bug: Bug, folder: Path) -> None:
    """Fill a folder with executables of which one component has a bug."""
    having = _ROLES_OF.get(bug.of, (bug.of,))
    script = _SCRIPT.format(chooses=CHOOSES, bug=bug.name, folder=executables, flags=" ".join(bug.flags))
    folder.mkdir(parents=True)
    for role in ROLES:
        if role not in having:
            (folder / role).symlink_to(executables / role)
            continue
        (folder / role).write_text(script)
        (folder / role).chmod(0o755)
