"""The host's file systems as a lab sees them: read-only, but for its own folder and what is in memory."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.model.problem import Problem

_MOUNTS = Path("/proc/self/mountinfo")
_KEPT = (
    *("autofs", "bpf", "cgroup", "cgroup2", "devpts", "devtmpfs", "fusectl", "hugetlbfs", "mqueue", "nsfs"),
    *("proc", "securityfs", "selinuxfs", "sysfs", "tmpfs", "tracefs"),
)
"""Kinds of file systems that keep nothing which outlives the host's kernel; every other is protected."""
_MOUNT_LIMIT_S = 10.0


@dataclass(frozen=True)
class _Mount:
    """A line of mountinfo (proc_pid_mountinfo(5))."""

    number: int
    point: Path
    writable: bool
    kind: str


def protect_host(folder: Path) -> None:
    """Make everything read-only in this mount namespace that stores what is written, but for `folder`.

    What a fault, a component or a shell on a node does to files, it does to the lab. Raises Problem when
    something stays writable, CommandFailed when the lab's own folder cannot be mounted.
    """
    _run_mount("--rbind", str(folder), str(folder))
    for mount in _stored(folder):
        with contextlib.suppress(proc.CommandFailed):
            _run_mount("-o", "remount,bind,ro", str(mount.point))
    # A look, and no trust in mount(8): it fails, too, at what is out of reach below another mount.
    left = [str(mount.point) for mount in _stored(folder) if mount.writable and _is_reached(mount)]
    if left:
        raise Problem(
            f"the host's {', '.join(left)} cannot be made read-only",
            "lab",
            "unmount it, or use a machine where root may remount",
        )


def _stored(folder: Path) -> list[_Mount]:
    """What keeps what is written to it, and is not the lab's own."""
    return [
        mount for mount in _mounts() if mount.kind not in _KEPT and not mount.point.is_relative_to(folder)
    ]


def _mounts() -> Iterator[_Mount]:
    for line in os.fsdecode(_MOUNTS.read_bytes()).split("\n")[:-1]:
        place, _separator, what = line.partition(" - ")
        number, _parent, _device, _root, point, options, *_tags = place.split(" ")
        writable = "rw" in options.split(",")
        yield _Mount(int(number), Path(_unescaped(point)), writable, what.split(" ")[0])


def _is_reached(mount: _Mount) -> bool:
    """Whether its path leads to it, and not to another mount above it."""
    try:
        descriptor = os.open(mount.point, os.O_PATH)
    except OSError:
        return False
    try:
        return f"mnt_id:\t{mount.number}\n" in Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)


def _run_mount(*arguments: str) -> None:
    proc.run(["mount", "-n", *arguments], timeout_s=_MOUNT_LIMIT_S)


def _unescaped(point: str) -> str:
    """A path as the kernel writes it: blanks, line ends and backslashes are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
