"""The running labs of this machine: find, use, tear down, and sweep up after killed ones."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.artifacts.components import Component, Components
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.supervised import supervised, wait_gone
from nodeproof.labs.ground.spec import RUNTIME_ROOT, LabSpec
from nodeproof.labs.ground.wire import SupervisorClient
from nodeproof.model.problem import Problem
from nodeproof.root import become_root, root_prefix
from nodeproof.safety.ledger import Ledger, labs_with_ledgers

Json = Any
STILLBORN_S = 30.0
"""The age at which a folder without a lab's name will never get one."""
_LAB_NAME = re.compile(r"p-[0-9a-f]{6}")


def attach(name: str, holds: bool = False) -> Lab:
    """Use a running lab with the components that it was started with. Raises Problem.

    With `holds`, the lab does not end before the returned one is closed.
    """
    folder, components = _folder(name), components_of(spec_of(name))
    return supervised(folder, components, client(name).hold() if holds else None)


def spec_of(name: str) -> LabSpec:
    """Return the spec of a lab. Raises Problem if there is no such lab or another version started it."""
    try:
        return LabSpec.from_json((_folder(name) / "spec.json").read_text())
    except ValueError as error:
        raise Problem(
            f"another version of nodeproof started it: {error}",
            f"lab {name}",
            f"use that version, or end it: nodeproof down --lab-name {name}",
        ) from error


def client(name: str) -> SupervisorClient:
    """Return a client of a lab's supervisor. Raises Problem if there is no such lab."""
    return SupervisorClient(_folder(name) / "s")


def memory_line(status: Mapping[str, Json]) -> str:
    """Describe how full a lab's own memory is; labs of earlier versions do not report that."""
    parts = [
        f"{name} {(usage['size_bytes'] - usage['free_bytes']) >> 20} of {usage['size_bytes'] >> 20} MiB"
        for name, usage in status.get("memory", {}).items()
    ]
    return ", ".join(parts) or "memory usage unknown"


def running() -> list[str]:
    """Return the names of the labs whose supervisor is alive."""
    return [folder.name for folder in _folders() if _is_held(folder)]


def the_lab(name: str | None) -> str:
    """Return the lab called `name`; without a name, the only one that a person started, or the only one.

    Raises Problem if that is ambiguous.
    """
    names = running()
    if name in names:
        return str(name)
    by_hand = [lab for lab in names if _is_by_hand(lab)]
    for chosen in (by_hand, names):
        if name is None and len(chosen) == 1:
            return chosen[0]
    labs_up = "no lab is up" if not names else f"{len(names)} labs are up: {', '.join(names)}"
    raise Problem(
        labs_up if name is None else f"no lab {name!r}; {labs_up}",
        "--lab-name",
        "run `nodeproof up`, or name one",
    )


def _is_by_hand(lab: str) -> bool:
    """Return whether a lab is kept; False if it has just ended or another version started it."""
    try:
        return spec_of(lab).keep
    except (OSError, Problem):
        return False


def down(name: str) -> None:
    """Tear a lab down by name, whether its supervisor is alive or was killed. Raises Problem."""
    folder = _folder(name)
    if _is_held(folder):
        SupervisorClient(folder / "s").down()
        wait_gone(folder)
    else:
        _remove(folder)
    Ledger(name).forget()


def sweep() -> list[str]:
    """Remove what killed supervisors left, which are folders whose lock is free; return their names.

    If the caller cannot become root, folders that only root can read stay: `unswept` lists them.
    """
    unheld = [folder for folder in [*_folders(), *_stillborn()] if not _is_held(folder)]
    for folder in unheld:
        _remove(folder)
    alive = set(running())
    for lab in _labs_with_ledgers():
        if _LAB_NAME.fullmatch(lab) and lab not in alive:
            Ledger(lab).forget()
    return [folder.name for folder in unheld]


def _labs_with_ledgers() -> list[str]:
    """Return the labs with a ledger; none if the state folder is another user's.

    That happens with `sudo -u`, which may leave HOME unchanged.
    """
    with contextlib.suppress(PermissionError):
        return labs_with_ledgers()
    return []


def unswept() -> list[Path]:
    """Return the folders of labs killed early in their start that `sweep` could not remove."""
    return _stillborn()


def components_of(spec: LabSpec) -> Components:
    """Return the components that a lab was started with."""
    parts = {
        role: Component(role, Path(part["path"]), part["version"], part["sha256"], part["origin"])
        for role, part in spec.components.items()
    }
    return Components(spec.kubernetes_version, parts, spec.hollow_from_tree)


def _folders() -> list[Path]:
    """Return the folders of the caller's own labs; those of other users are ignored."""
    if not RUNTIME_ROOT.is_dir():
        return []
    lab_folders = (path for path in RUNTIME_ROOT.iterdir() if _LAB_NAME.fullmatch(path.name))
    return sorted(path for path in lab_folders if _owner(path) == os.getuid())


def _folder(name: str) -> Path:
    folder = RUNTIME_ROOT / name
    if not _LAB_NAME.fullmatch(name) or _owner(folder) != os.getuid():
        raise Problem(f"no lab {name!r}", str(RUNTIME_ROOT), f"there are: {', '.join(running()) or 'none'}")
    return folder


def _stillborn() -> list[Path]:
    """Return folders that never got a lab's name and are too old to get one."""
    if not RUNTIME_ROOT.is_dir():
        return []
    # Until a folder gets its name, it is owned by root.
    unnamed = [path for path in RUNTIME_ROOT.glob(".p-*") if _owner(path) in (os.getuid(), 0)]
    return [path for path in unnamed if _age_s(path) > STILLBORN_S]


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


def _age_s(path: Path) -> float:
    """Return how long (s) the entries of a folder have not changed; 0 if it has been renamed meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_held(folder: Path) -> bool:
    """Return whether a process holds the lab's lock; only a folder whose lock is free may be swept."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return _is_held_for_root(folder / "lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_held_for_root(lock: Path) -> bool:
    """Return whether the lock is held, checked as root; True if the caller cannot become root.

    Such a caller could not remove the folder either.
    """
    try:
        # flock(1) creates a missing lock file, which is removed with its folder.
        argv = [*become_root(), "flock", "--nonblock", str(lock), "true"]
        return proc.run(argv, timeout_s=10, check=False).status != 0
    except (Problem, proc.CommandFailed):
        return True


def _remove(folder: Path) -> None:
    try:
        unfinished = LabSpec.from_json((folder / "spec.json").read_text()).half_made()
    except (OSError, ValueError):
        unfinished = []
    proc.run([*root_prefix(), "rm", "-rf", "--", *map(str, [folder, *unfinished])], timeout_s=30)
