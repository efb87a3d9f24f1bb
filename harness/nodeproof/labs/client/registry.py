"""The running labs of this machine: find, use, heal, tear down, and sweep up after killed ones."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from nodeproof import locks, proc
from nodeproof.artifacts.components import Component, Components
from nodeproof.labs.base.spec import RUNTIME_ROOT, LabSpec
from nodeproof.labs.base.wire import LabStatus, SupervisorClient
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import InUse, LabHandle
from nodeproof.labs.client.supervised import end, supervised
from nodeproof.labs.kinds import EXISTING
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.root import become_root, root_prefix
from nodeproof.safety.ledger import Ledger, labs_with_ledgers

UNNAMED_AFTER_S = 30.0
"""Age (s) at which a folder without a lab's name will never get one."""
_LAB_NAME = re.compile(r"p-[0-9a-f]{6}")


def attach(name: str, hold: bool = False) -> LabHandle:
    """Use a running lab with the components that it was started with. Raises Problem.

    With `hold`, the lab does not end before the returned one is closed.
    """
    folder, components = _folder(name), components_of(spec_of(name))
    return supervised(folder, components, client(name).hold() if hold else None)


def spec_of(name: str) -> LabSpec:
    """Return the spec of a lab. Raises Problem if there is no such lab or another version started it."""
    try:
        return LabSpec.from_json((_folder(name) / "spec.json").read_text())
    except ValueError as error:
        raise Problem(
            f"another version of nodeproof started this lab: {error}",
            f"lab {name}",
            f"use that version, or run `nodeproof down --lab-name {name}`",
        ) from error


def client(name: str) -> SupervisorClient:
    """Return a client of a lab's supervisor. Raises Problem if there is no such lab."""
    return SupervisorClient(_folder(name) / "s")


def describe_memory(status: LabStatus) -> str:
    """Describe how full a lab's own memory is."""
    return ", ".join(
        f"{name} {(usage.size_bytes - usage.free_bytes) >> 20} of {usage.size_bytes >> 20} MiB"
        for name, usage in status.memory.items()
    )


def running() -> list[str]:
    """Return the names of the labs whose supervisor is alive."""
    return [folder.name for folder in _folders() if _is_held(folder)]


def default_lab(name: str | None) -> str:
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
    missing = "no lab is up" if name is None else f"no lab {name!r} is up"
    if not names:
        raise Problem(missing, str(RUNTIME_ROOT), "start one with `nodeproof up`")
    message = f"{len(names)} labs are up" if name is None else missing
    raise Problem(message, "--lab-name", f"choose one of: {', '.join(names)}")


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
        end(SupervisorClient(folder / "s"))
    else:
        _remove(folder)
    Ledger(name).forget()


def sweep() -> list[str]:
    """Remove what killed supervisors left, which are folders whose lock is free; return their names.

    If the caller cannot become root, folders that only root can read stay: `unswept_folders` lists them.
    """
    unheld = [folder for folder in [*_folders(), *unswept_folders()] if not _is_held(folder)]
    for folder in unheld:
        _remove(folder)
    alive = set(running())
    # With `sudo -u`, which may leave HOME unchanged, the state folder is another user's.
    with contextlib.suppress(PermissionError):
        for lab in labs_with_ledgers():
            if _LAB_NAME.fullmatch(lab) and lab not in alive:
                Ledger(lab).forget()
    return [folder.name for folder in unheld]


def components_of(spec: LabSpec) -> Components:
    """Return the components that a lab was started with."""
    parts = {
        role: Component(role, Path(part["path"]), part["version"], part["sha256"], part["origin"])
        for role, part in spec.components.items()
    }
    return Components(spec.kubernetes_version, parts, spec.hollow_from_tree)


def _folders() -> list[Path]:
    """Return the folders of the caller's own labs; those of other users are ignored."""
    folders = sorted(path for path in RUNTIME_ROOT.glob("p-*") if _LAB_NAME.fullmatch(path.name))
    return [folder for folder in folders if _is_owned(folder, os.getuid())]


def _folder(name: str) -> Path:
    folder = RUNTIME_ROOT / name
    if not _LAB_NAME.fullmatch(name) or not _is_owned(folder, os.getuid()):
        raise Problem(f"no lab {name!r}", str(RUNTIME_ROOT), f"there are: {', '.join(running()) or 'none'}")
    return folder


def unswept_folders() -> list[Path]:
    """Return folders of labs killed early in their start: without a name, and too old to get one."""
    # Until a folder gets its name, it is owned by root.
    unnamed = RUNTIME_ROOT.glob(".p-*")
    return [path for path in unnamed if _is_owned(path, os.getuid(), 0, age_s=UNNAMED_AFTER_S)]


def _is_owned(folder: Path, *uids: int, age_s: float = 0.0) -> bool:
    """Return whether a folder has one of these owners, and its entries have not changed for `age_s`.

    False if it is gone: it may have been renamed meanwhile.
    """
    try:
        status = folder.stat()
    except FileNotFoundError:
        return False
    return status.st_uid in uids and (not age_s or time.time() - status.st_mtime > age_s)


def _is_held(folder: Path) -> bool:
    """Return whether a process holds the lab's lock; only a folder whose lock is free may be swept."""
    lock = folder / "lock"
    with contextlib.suppress(PermissionError):
        return locks.is_held(lock)
    # Only root can tell; a caller who cannot become root could not remove the folder either.
    with contextlib.suppress(Problem, proc.CommandFailed):
        # flock(1) creates a missing lock file, which is removed with its folder.
        argv = [*become_root(), "flock", "--nonblock", str(lock), "true"]
        return proc.run(argv, timeout_s=10, check=False).status != 0
    return True


def _remove(folder: Path) -> None:
    try:
        unfinished = LabSpec.from_json((folder / "spec.json").read_text()).unfinished_snapshots()
    except (OSError, ValueError):
        unfinished = []
    proc.run([*root_prefix(), "rm", "-rf", "--", *map(str, [folder, *unfinished])], timeout_s=30)


def heal(name: str, zone: str = "") -> None:
    """Heal an unused lab, or one of its zones; a lab that is still starting has no faults.

    Raises:
        InUse: another process uses it.
        Problem: it cannot be healed, or the heal cannot be proven.
    """
    where = f"lab {name}"
    try:
        if client(name).status().phase != "ready":
            return
        with contextlib.closing(attach(name)) as lab:
            if zone:
                lab.lease(zone)
            else:
                lab.leases.take_lab()
            _heal(lab, where, "run `nodeproof down`")
    except (OutsideError, OSError) as error:
        raise Problem(str(error), where, f"run `nodeproof down --lab-name {name}`") from error


def heal_cluster(inventory: Path) -> None:
    """Heal somebody's own cluster by the ledger in it, whatever machine the faults came from.

    Raises:
        Problem: Another process uses it, it cannot be healed, or the heal cannot be proven.
    """
    where = str(inventory)
    with contextlib.closing(starting.attach(EXISTING.name, where)) as lab:
        try:
            _heal(lab, where, "check these machines, and run it again")
        except (OutsideError, OSError) as error:
            raise Problem(str(error), where, "run it again") from error


def _heal(lab: LabHandle, where: str, next_step: str) -> None:
    """Heal a lab and tidy it. Raises Problem if that is not proven, OutsideError, OSError."""
    unproven = lab.safety.heal_unfinished()
    lab.tidy()
    if unproven:
        raise Problem(f"not proven healed: {', '.join(unproven)}", where, next_step)


def heal_unzoned(name: str) -> None:
    """Heal the faults of an earlier user of the whole lab, which lessees of zones do not see.

    Do nothing if the lab is in use: its user heals them. Raises Problem.
    """
    if any(not entry.lease for entry in Ledger(name).unfinished()):
        with contextlib.suppress(InUse):
            heal(name)


def heal_abandoned(own_lab: str, report: Callable[[str], None]) -> None:
    """Heal every unused lab, except `own_lab`, in which a run left a fault.

    Failures are only reported, as another lab can still be used. A lab that ends meanwhile took its faults
    along.
    """
    for name in running():
        if name == own_lab or not Ledger(name).unfinished():
            continue
        try:
            heal(name)
            report(f"lab {name}: healed the faults of an earlier run")
        except InUse:
            continue
        except Problem as problem:
            if name in running():
                report(f"lab {name} is not healed: {problem}")
