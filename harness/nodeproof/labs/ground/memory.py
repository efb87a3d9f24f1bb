"""A lab's own memory: tmpfs mounts of a limited size, so that a lab can fill only its own.

Both are mounted below the lab's folder, in its mount namespace only, and end with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.labs.ground.logs import LIMIT_BYTES

Json = Any
_MIB = 1 << 20
_BASE_MIB = 1024
"""etcd with its write-ahead log, and the files of the lab's programs."""
_LOGS_MIB, _NODE_LOGS_MIB = 192, 48
"""The control plane's logs and the audit log at their limits; a console, or a kubelet's and an sshd's log."""
_MOUNT_LIMIT_S = 10.0
_FULL_FRACTION = 0.02
"""A part with a smaller free fraction counts as full."""
_LEAST_FREE_BYTES = 2 * LIMIT_BYTES
"""Truncating a log copies it first; with less free space the copy may crowd out the other logs."""


def mount_memory(path: Path, node_mib: int, nodes: int) -> Path:
    """Mount a lab's memory at `path`, with a separate part for logs: full logs do not stop etcd.

    Args:
        path: the mount point.
        node_mib: memory per node (MiB): a kubelet's folders, or the written part of a guest's disk.
        nodes: how many nodes the lab has.

    Raises:
        CommandFailed: mount(8) failed.
    """
    _mount(path, 0o711, _BASE_MIB + nodes * node_mib)
    for name in ("nodes", "scratch"):
        (path / name).mkdir()
    # Readable for clients that receive its descriptor; it has no path outside of the lab.
    _mount(logs_in(path), 0o755, _LOGS_MIB + nodes * _NODE_LOGS_MIB)
    return path


def logs_in(memory: Path) -> Path:
    """Return the folder of a lab's logs in its memory."""
    return memory / "logs"


class Room:
    """How full a lab's memory is, and when each part was last full."""

    def __init__(self, memory: Path) -> None:
        self._parts = {"memory": memory, "memory for logs": logs_in(memory)}
        self._full_t: dict[str, float] = {}

    def look(self) -> None:
        """Record which parts are full now: once space is freed, nothing else shows that data was lost."""
        for name, path in self._parts.items():
            if _usage(path)["is_full"]:
                self._full_t[name] = round(time.monotonic(), 6)

    def told(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the usage of each part by name.

        That is its size and free space (bytes), whether it is full, and when it was last full (s, monotonic;
        None: never).
        """
        self.look()
        return {
            name: {**_usage(path), "full_t": self._full_t.get(name)} for name, path in self._parts.items()
        }


def _usage(path: Path) -> Mapping[str, int]:
    stat = os.statvfs(path)
    size_bytes, free_bytes = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    is_full = free_bytes < max(_FULL_FRACTION * size_bytes, _LEAST_FREE_BYTES)
    return {"size_bytes": size_bytes, "free_bytes": free_bytes, "is_full": is_full}


def _mount(path: Path, mode: int, size_mib: int) -> None:
    path.mkdir()
    options = f"mode={mode:04o},size={size_mib * _MIB}"
    proc.run(["mount", "-t", "tmpfs", "-o", options, "nodeproof", str(path)], timeout_s=_MOUNT_LIMIT_S)
