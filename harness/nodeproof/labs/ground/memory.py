"""A lab's own memory: file systems with a size, so that whatever a lab writes fills no more than its own.

Both are in the lab's mount namespace alone, below its folder, and end with it.
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
"""etcd with its write-ahead log, and what the lab's programs put down."""
_LOGS_MIB, _NODE_LOGS_MIB = 192, 48
"""The control plane's logs and the audit log at their limits; a console, or a kubelet's and an sshd's log."""
_MOUNT_LIMIT_S = 10.0
_FULL_FRACTION = 0.02
"""A part with less of it free is full."""
_LEAST_FREE_BYTES = 2 * LIMIT_BYTES
"""With less a log that is cut, of which a copy is made, may leave no room for the others."""


def mount_memory(path: Path, node_mib: int, nodes: int) -> Path:
    """Mount a lab's memory at `path`, with its logs in a part of their own: full logs stop no etcd.

    `node_mib` is for a node: a kubelet's folders; a guest's disk, as far as it was written to.

    Raises CommandFailed.
    """
    _mount(path, 0o711, _BASE_MIB + nodes * node_mib)
    for name in ("nodes", "scratch"):
        (path / name).mkdir()
    # Whoever is handed this folder may read it; there is no way to it from outside of the lab.
    _mount(logs_in(path), 0o755, _LOGS_MIB + nodes * _NODE_LOGS_MIB)
    return path


def logs_in(memory: Path) -> Path:
    """Where a lab's logs are in its memory."""
    return memory / "logs"


class Room:
    """How full a lab's memory is, and when a part of it was seen full last."""

    def __init__(self, memory: Path) -> None:
        self._parts = {"memory": memory, "memory for logs": logs_in(memory)}
        self._full_t: dict[str, float] = {}

    def look(self) -> None:
        """See which parts are full: what is made room in goes on as if nothing had been lost."""
        for name, path in self._parts.items():
            if _told(path)["is_full"]:
                self._full_t[name] = round(time.monotonic(), 6)

    def told(self) -> Mapping[str, Mapping[str, Json]]:
        """By name: size and what is free (bytes), whether that is too little, and when it was so last (s,
        monotonic; None: never).
        """
        self.look()
        return {name: {**_told(path), "full_t": self._full_t.get(name)} for name, path in self._parts.items()}


def _told(path: Path) -> Mapping[str, int]:
    stat = os.statvfs(path)
    size_bytes, free_bytes = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    is_full = free_bytes < max(_FULL_FRACTION * size_bytes, _LEAST_FREE_BYTES)
    return {"size_bytes": size_bytes, "free_bytes": free_bytes, "is_full": is_full}


def _mount(path: Path, mode: int, size_mib: int) -> None:
    path.mkdir()
    options = f"mode={mode:04o},size={size_mib * _MIB}"
    proc.run(["mount", "-t", "tmpfs", "-o", options, "nodeproof", str(path)], timeout_s=_MOUNT_LIMIT_S)
