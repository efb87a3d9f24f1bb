"""Makes the host's file systems read-only for a lab, except its own folder and memory file systems."""

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
_VOLATILE = (
    *("autofs", "bpf", "cgroup", "cgroup2", "devpts", "devtmpfs", "fusectl", "hugetlbfs", "mqueue", "nsfs"),
    *("proc", "securityfs", "selinuxfs", "sysfs", "tmpfs", "tracefs"),
)
"""Types of file systems whose content does not outlive the host's kernel; all others are protected."""
_MOUNT_LIMIT_S = 10.0


@dataclass(frozen=True)
class _Mount:
    """A line of mountinfo (proc_pid_mountinfo(5))."""

    number: int
    point: Path
    writable: bool
    kind: str


def protect_host(folder: Path) -> None:
    """Make every persistent file system in this mount namespace read-only, except `folder`.

    Whatever a fault, a component or a shell on a node does to files then affects the lab only.

    Raises:
        Problem: a file system stays writable.
        CommandFailed: the lab's folder cannot be mounted.
    """
    _run_mount("--rbind", str(folder), str(folder))
    for mount in _stored(folder):
        with contextlib.suppress(proc.CommandFailed):
            _run_mount("-o", "remount,bind,ro", str(mount.point))
    # mount(8) also fails for mounts hidden below another one, so look at the result instead of its status.
    writable = [str(mount.point) for mount in _stored(folder) if mount.writable and _is_reached(mount)]
    if writable:
        raise Problem(
            f"the host's {', '.join(writable)} cannot be made read-only",
            "lab",
            "unmount it, or use a machine where root may remount",
        )


def _stored(folder: Path) -> list[_Mount]:
    """Return the mounts that keep data and are not part of the lab's folder."""
    return [
        mount for mount in _mounts() if mount.kind not in _VOLATILE and not mount.point.is_relative_to(folder)
    ]


def _mounts() -> Iterator[_Mount]:
    for line in os.fsdecode(_MOUNTS.read_bytes()).split("\n")[:-1]:
        fields, _separator, file_system = line.partition(" - ")
        number, _parent, _device, _root, point, options, *_tags = fields.split(" ")
        writable = "rw" in options.split(",")
        yield _Mount(int(number), Path(_unescaped(point)), writable, file_system.split(" ")[0])


def _is_reached(mount: _Mount) -> bool:
    """Return whether the mount's path leads to it, not to another mount on top of it."""
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
    """Decode a path from mountinfo, where blanks, line ends and backslashes are octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
