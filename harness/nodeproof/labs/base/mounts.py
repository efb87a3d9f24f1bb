"""What a lab mounts in its namespace: a private /etc, a read-only host, and memory of its own.

Nodes get a private /etc, too: changes to the host's do not reach it. Bind mounts of single files would not be
enough: when the host replaces such a file, as useradd or a package does with /etc/passwd, the kernel detaches
the mount in every namespace. The memory is tmpfs of a limited size, so that a lab can fill only its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.processes import LIMIT_BYTES
from nodeproof.labs.base.spec import API_ADDRESS
from nodeproof.labs.base.wire import MemoryUsage
from nodeproof.model.problem import Problem

ETC = Path("/etc")
_MOUNT_TIMEOUT_S = 10.0
HOST_ENTRIES = (
    *("alternatives", "bash.bashrc", "group", "host.conf", "iproute2", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "nsswitch.conf", "passwd", "profile", "protocols", "services", "terminfo"),
)
"""The entries of the host's /etc that its programs need to run in a lab."""
_MOUNTS = Path("/proc/self/mountinfo")
_VOLATILE = (
    *("autofs", "bpf", "cgroup", "cgroup2", "devpts", "devtmpfs", "fusectl", "hugetlbfs", "mqueue", "nsfs"),
    *("proc", "securityfs", "selinuxfs", "sysfs", "tmpfs", "tracefs"),
)
"""Types of file systems whose content does not outlive the host's kernel; all others are protected."""
_MIB = 1 << 20
_BASE_MIB = 1024
"""etcd with its write-ahead log, and the files of the lab's programs."""
_LOGS_MIB, _NODE_LOGS_MIB = 192, 48
"""The control plane's logs and the audit log at their limits; a console, or a kubelet's and an sshd's log."""
_FULL_FRACTION = 0.02
"""A part with a smaller free fraction counts as full."""
_LEAST_FREE_BYTES = 2 * LIMIT_BYTES
"""Truncating a log copies it first; with less free space the copy may crowd out the other logs."""


def make_etc(folder: Path, own: Mapping[str, str]) -> Path:
    """Copy the host's `HOST_ENTRIES` entries to `folder` and write the files of `own`. Raises OSError."""
    folder.mkdir(parents=True)
    for name in HOST_ENTRIES:
        source = ETC / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, folder / name)
    for name, text in own.items():
        (folder / name).write_text(text)
    return folder


def mount_etc(folder: Path) -> None:
    """Mount a lab's own /etc over the host's, in this mount namespace.

    Names resolve through the lab's hosts file only; the host's name servers are not used.

    Raises:
        CommandFailed: mount(8) failed.
        OSError: the folder cannot be written.
    """
    own = {"hosts": f"127.0.0.1 localhost\n{API_ADDRESS} kubernetes\n", "resolv.conf": ""}
    run_mount("--bind", str(make_etc(folder, own)), str(ETC))


@dataclass(frozen=True)
class _Mount:
    """A line of mountinfo (proc_pid_mountinfo(5))."""

    number: int
    point: Path
    writable: bool


def protect_host(folder: Path) -> None:
    """Make every persistent file system in this mount namespace read-only, except `folder`.

    Whatever a fault, a component or a shell on a node does to files then affects the lab only.

    Raises:
        Problem: a file system stays writable.
        CommandFailed: the lab's folder cannot be mounted.
    """
    run_mount("--rbind", str(folder), str(folder))
    for mount in _stored(folder):
        with contextlib.suppress(proc.CommandFailed):
            run_mount("-o", "remount,bind,ro", str(mount.point))
    # mount(8) also fails for mounts hidden below another one, so look at the result instead of its status.
    writable = [str(mount.point) for mount in _stored(folder) if mount.writable and _is_reached(mount)]
    if writable:
        message = f"the host's {', '.join(writable)} cannot be made read-only"
        raise Problem(message, "lab", "unmount it, or use a machine where root may remount")


def _stored(folder: Path) -> Iterator[_Mount]:
    """Yield the mounts that keep data and are not part of the lab's folder."""
    for line in os.fsdecode(_MOUNTS.read_bytes()).split("\n")[:-1]:
        fields, _separator, file_system = line.partition(" - ")
        number, _parent, _device, _root, escaped, options, *_tags = fields.split(" ")
        # Blanks, line ends and backslashes are octal escapes.
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped))
        if file_system.split(" ")[0] not in _VOLATILE and not point.is_relative_to(folder):
            yield _Mount(int(number), point, "rw" in options.split(","))


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


def run_mount(*arguments: str) -> None:
    """Run mount(8). Raises CommandFailed."""
    proc.run(["mount", "-n", *arguments], timeout_s=_MOUNT_TIMEOUT_S)


def mount_memory(path: Path, node_mib: int, nodes: int, control_planes: int) -> Path:
    """Mount a lab's memory at `path`, with a separate part for logs: full logs do not stop etcd.

    Args:
        path: the mount point.
        node_mib: memory per node (MiB): a kubelet's folders, or the written part of a guest's disk.
        nodes: how many nodes the lab has.
        control_planes: how many control planes the lab has.

    Raises:
        CommandFailed: mount(8) failed.
    """
    _mount_tmpfs(path, 0o711, control_planes * _BASE_MIB + nodes * node_mib)
    for name in ("nodes", "scratch"):
        (path / name).mkdir()
    # Readable for clients that receive its descriptor; it has no path outside of the lab.
    _mount_tmpfs(logs_in(path), 0o755, control_planes * _LOGS_MIB + nodes * _NODE_LOGS_MIB)
    return path


def logs_in(memory: Path) -> Path:
    """Return the folder of a lab's logs in its memory."""
    return memory / "logs"


class Memory:
    """The parts of a lab's memory: how full they are, and when each was last full."""

    def __init__(self, memory: Path) -> None:
        self._parts = {"memory": memory, "memory for logs": logs_in(memory)}
        self._full_t: dict[str, float] = {}

    def update(self) -> None:
        """Record which parts are full now: once space is freed, nothing else shows that data was lost."""
        for name in self._parts:
            if self._usage(name).is_full:
                self._full_t[name] = round(time.monotonic(), 6)

    def usage(self) -> Mapping[str, MemoryUsage]:
        """Return the usage of each part by name."""
        self.update()
        return {name: self._usage(name) for name in self._parts}

    def _usage(self, name: str) -> MemoryUsage:
        stat = os.statvfs(self._parts[name])
        size_bytes, free_bytes = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        is_full = free_bytes < max(_FULL_FRACTION * size_bytes, _LEAST_FREE_BYTES)
        return MemoryUsage(size_bytes, free_bytes, is_full, self._full_t.get(name))


def _mount_tmpfs(path: Path, mode: int, size_mib: int) -> None:
    path.mkdir()
    options = f"mode={mode:04o},size={size_mib * _MIB}"
    run_mount("-t", "tmpfs", "-o", options, "nodeproof", str(path))
