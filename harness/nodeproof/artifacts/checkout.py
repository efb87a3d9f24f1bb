"""A checkout of kubernetes/kubernetes as the source of a build. It is only read.

Its content alone identifies it: an edit, its commit and a copy of the checkout are the same source.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts.build import BUILD, Version, staging_modules
from nodeproof.model.overrides import SOURCE_OPTION
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

_GIT_TIMEOUT_S = 600.0
_MAX_NAMED = 3


@dataclass(frozen=True)
class Checkout:
    """A checkout at one moment.

    `commit` is empty without a repository. `changes` is the number of files that differ from it, `content` 12
    hex digits over all files that a build may read.
    """

    folder: str
    version: str
    commit: str
    changes: int
    content: str

    @property
    def text(self) -> str:
        """The checkout as reports name it, by which runs are told apart."""
        commit = f"commit {self.commit}" if self.commit else "no commit"
        changes = f"{self.changes} uncommitted change{'s' * (self.changes != 1)}" if self.changes else ""
        return f"{SOURCE_OPTION} " + ", ".join(filter(None, (commit, changes, f"content {self.content}")))


def checkout_of(source: str, components: str, version: str) -> Checkout | None:
    """Return the state of the checkout that options name, or None if they name none.

    Raises:
        Problem: There is also a folder of executables, or as `read_checkout`.
    """
    if not source:
        return None
    if components != BUILD:
        raise Problem(
            "both a checkout and executables were given", f"{SOURCE_OPTION}, --components", "leave one out"
        )
    return read_checkout(Path(source), version)


def read_checkout(folder: Path, version: str) -> Checkout:
    """Read the state of a checkout.

    Args:
        folder: the checkout.
        version: its version of Kubernetes; if empty, the last tag before its commit.

    Raises:
        Problem: It is no checkout of Kubernetes, a file cannot be read, or the version is unknown.
    """
    folder = folder.expanduser().resolve()
    _check_complete(folder)
    is_repository = _ask_git(folder, "rev-parse", "--show-toplevel") == str(folder)
    version = str(Version.parse(version)) if version else _version_of(folder, is_repository)
    commit = _ask_git(folder, "rev-parse", "--short=12", "HEAD") if is_repository else ""
    changes = _ask_git(folder, "status", "--porcelain", "--untracked-files=all") if commit else ""
    try:
        content = content_hash(folder)
    except OSError as error:
        message = f"the checkout cannot be read: {error}"
        raise Problem(message, f"{SOURCE_OPTION} {folder}", "make its files readable") from error
    return Checkout(str(folder), version, commit, len(changes.splitlines()), content)


def content_hash(folder: Path) -> str:
    """Return 12 hex digits over names and contents of all files that a build may read."""
    digest = hashlib.sha256()
    for path in sorted(_inputs(folder)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def _inputs(folder: Path) -> Iterator[Path]:
    """Yield all files but tests, those that Go ignores (`go help packages`), and vendor, which is unused."""
    for root, folders, files in os.walk(folder):
        is_top = root == str(folder)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "_")) and name != "testdata" and not (is_top and name == "vendor")
        ]
        for name in files:
            path = Path(root, name)
            if not name.startswith((".", "_")) and not name.endswith("_test.go") and _is_file(path):
                yield path


def _is_file(path: Path) -> bool:
    """Return whether this is a regular file: a link points into the tree, or to what no build reads."""
    return stat.S_ISREG(path.lstat().st_mode)


def _check_complete(folder: Path) -> None:
    """Check that all parts of a checkout are there. Raises Problem."""
    try:
        go_mod = (folder / "go.mod").read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _incomplete(folder, "go.mod cannot be read") from error
    if not re.search(r"^module k8s\.io/kubernetes$", go_mod, re.MULTILINE):
        raise _incomplete(folder, "its go.mod is not that of k8s.io/kubernetes")
    parts = ["go.sum", *(f"staging/src/{module}/go.mod" for module in staging_modules(go_mod))]
    missing = [part.removesuffix("/go.mod") for part in parts if not (folder / part).is_file()]
    if missing:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise _incomplete(folder, f"it lacks {', '.join(missing[:_MAX_NAMED])}{more}")


def _incomplete(folder: Path, reason: str) -> Problem:
    message = f"no checkout of Kubernetes: {reason}"
    return Problem(
        message, f"{SOURCE_OPTION} {folder}", "name the top folder of a clone of kubernetes/kubernetes"
    )


def _version_of(folder: Path, is_repository: bool) -> str:
    """Return the last tag before the commit of a checkout. Raises Problem."""
    reason = "it is no Git repository"
    if is_repository:
        tag = _ask_git(folder, "describe", "--tags", "--abbrev=0", "--match=v1.*")
        if tag:
            return str(Version.parse(tag))
        reason = "git describe finds no tag"
    next_step = f"add --kubernetes-version {DEFAULT_KUBERNETES_VERSION}, or fetch the tags"
    raise Problem(f"the version of the checkout is unknown: {reason}", f"{SOURCE_OPTION} {folder}", next_step)


def git(folder: Path, *arguments: str) -> str:
    """Return Git's answer in a folder, whichever repository the environment names. Raises CommandFailed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return proc.run(["git", "-C", str(folder), *arguments], timeout_s=_GIT_TIMEOUT_S, env=env).stdout.strip()


def _ask_git(folder: Path, *arguments: str) -> str:
    """Return the answer of Git, or an empty text if it has none; Git may not refresh its index on the way."""
    with contextlib.suppress(proc.CommandFailed):
        return git(folder, "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments)
    return ""
