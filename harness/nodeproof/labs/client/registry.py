"""The labs that run on this machine: find them, use them, tear them down, sweep what killed ones left."""

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
"""How old a folder without a lab's name is that will never get one."""
_LAB_NAME = re.compile(r"p-[0-9a-f]{6}")


def attach(name: str, holds: bool = False) -> Lab:
    """Use a lab that runs, with the components that it was started with; where it `holds`, the lab does not
    go before this one is closed. Raises Problem.
    """
    folder, components = _folder(name), components_of(spec_of(name))
    return supervised(folder, components, client(name).hold() if holds else None)


def spec_of(name: str) -> LabSpec:
    """What a lab was started as. Raises Problem when there is no such lab, or another version started it."""
    try:
        return LabSpec.from_json((_folder(name) / "spec.json").read_text())
    except ValueError as error:
        raise Problem(
            f"another version of nodeproof started it: {error}",
            f"lab {name}",
            f"use that version, or end it: nodeproof down --lab-name {name}",
        ) from error


def client(name: str) -> SupervisorClient:
    """Speak to the supervisor of a lab. Raises Problem when there is no such lab."""
    return SupervisorClient(_folder(name) / "s")


def memory_line(status: Mapping[str, Json]) -> str:
    """How full a lab's own memory is, as its status tells; an earlier version's tells nothing."""
    parts = [
        f"{name} {(told['size_bytes'] - told['free_bytes']) >> 20} of {told['size_bytes'] >> 20} MiB"
        for name, told in status.get("memory", {}).items()
    ]
    return ", ".join(parts) or "it does not say how full its memory is"


def running() -> list[str]:
    """Names of the labs whose supervisor lives."""
    return [folder.name for folder in _folders() if _is_held(folder)]


def the_lab(name: str | None) -> str:
    """The lab of that name; else the one that a person started, whatever labs runs hold beside it.

    Raises Problem when that is not clear.
    """
    names = running()
    if name in names:
        return str(name)
    by_hand = [lab for lab in names if _is_by_hand(lab)]
    for chosen in (by_hand, names):
        if name is None and len(chosen) == 1:
            return chosen[0]
    what = "no lab is up" if not names else f"{len(names)} labs are up: {', '.join(names)}"
    raise Problem(
        what if name is None else f"no lab {name!r}; {what}", "--lab-name", "run `nodeproof up`, or name one"
    )


def _is_by_hand(lab: str) -> bool:
    """Whether a lab is kept; one that just went, or that another version wrote, is not meant."""
    try:
        return spec_of(lab).keep
    except (OSError, Problem):
        return False


def down(name: str) -> None:
    """Tear a lab down by name, whether its supervisor lives or was killed. Raises Problem."""
    folder = _folder(name)
    if _is_held(folder):
        SupervisorClient(folder / "s").down()
        wait_gone(folder)
    else:
        _remove(folder)
    Ledger(name).forget()


def sweep() -> list[str]:
    """Remove what killed supervisors left: only folders whose lock can be taken. Gives their names.

    What only root may look into stays where the caller cannot become root: `unswept` names it.
    """
    left = [folder for folder in [*_folders(), *_stillborn()] if not _is_held(folder)]
    for folder in left:
        _remove(folder)
    alive = set(running())
    for lab in _labs_with_ledgers():
        if _LAB_NAME.fullmatch(lab) and lab not in alive:
            Ledger(lab).forget()
    return [folder.name for folder in left]


def _labs_with_ledgers() -> list[str]:
    """None where the state folder is another user's, as with `sudo -u`, which may leave HOME as it is."""
    with contextlib.suppress(PermissionError):
        return labs_with_ledgers()
    return []


def unswept() -> list[Path]:
    """What starts left that were killed in their first moments, and `sweep` could not remove."""
    return _stillborn()


def components_of(spec: LabSpec) -> Components:
    """The components that a lab was started with, as its spec tells."""
    parts = {
        role: Component(role, Path(part["path"]), part["version"], part["sha256"], part["origin"])
        for role, part in spec.components.items()
    }
    return Components(spec.kubernetes_version, parts, spec.hollow_from_tree)


def _folders() -> list[Path]:
    """The folders of the caller's own labs; other users' are none of our business."""
    if not RUNTIME_ROOT.is_dir():
        return []
    found = (path for path in RUNTIME_ROOT.iterdir() if _LAB_NAME.fullmatch(path.name))
    return sorted(path for path in found if _owner(path) == os.getuid())


def _folder(name: str) -> Path:
    folder = RUNTIME_ROOT / name
    if not _LAB_NAME.fullmatch(name) or _owner(folder) != os.getuid():
        raise Problem(f"no lab {name!r}", str(RUNTIME_ROOT), f"there are: {', '.join(running()) or 'none'}")
    return folder


def _stillborn() -> list[Path]:
    """Folders that never got a lab's name, and are too old to get it yet."""
    if not RUNTIME_ROOT.is_dir():
        return []
    # Until it has its name, a folder is root's.
    found = [path for path in RUNTIME_ROOT.glob(".p-*") if _owner(path) in (os.getuid(), 0)]
    return [path for path in found if _age_s(path) > STILLBORN_S]


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


def _age_s(path: Path) -> float:
    """How long (s) nothing was made or removed in a folder; 0 where it has its lab's name meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_held(folder: Path) -> bool:
    """Whether somebody holds the lab's lock; only a folder whose lock is free may be swept."""
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
    """Ask as root; a caller who cannot become root, and so cannot remove it either, takes it for held."""
    try:
        # A lock that was never made is made, and goes with its folder.
        argv = [*become_root(), "flock", "--nonblock", str(lock), "true"]
        return proc.run(argv, timeout_s=10, check=False).status != 0
    except (Problem, proc.CommandFailed):
        return True


def _remove(folder: Path) -> None:
    try:
        half = LabSpec.from_json((folder / "spec.json").read_text()).half_made()
    except (OSError, ValueError):
        half = []
    proc.run([*root_prefix(), "rm", "-rf", "--", *map(str, [folder, *half])], timeout_s=30)
