"""Snapshots of guests, with memory, taken before they join; stored beside their image.

A snapshot is a folder `snapshots/NODE-HASH/` of the image's cache entry: the guest's memory, its disk (an
overlay of the image's) and a manifest. The hash covers what a restore depends on: the virtual machine except
paths and owner, QEMU, libvirt and, with KVM, the host's CPU. A snapshot contains no credential or identity.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nodeproof.labs.kinds.libvirt.domain_xml import Domain, domain_xml

UNUSED_LIMIT_S = 24 * 3600.0
"""A node's snapshots with another hash are removed once unused for this long."""
_MEMORY, _DISK, _MANIFEST, _PROVEN = "memory", "disk.qcow2", "manifest.json", "proven"


@dataclass(frozen=True)
class Snapshot:
    """A guest's memory as `virsh save` writes it, and its disk at that moment."""

    memory: Path
    disk: Path


def snapshot_key(domain: Domain, platform: str) -> str:
    """Return the folder's name, `NODE-HASH`; `platform` identifies what the guest runs on."""
    shape = replace(
        domain,
        lab="",
        machine_id="",
        kernel=Path(domain.kernel.name),
        initrd=Path(domain.initrd.name),
        disks=[replace(disk, file=Path(disk.target)) for disk in domain.disks],
        console=Path("console"),
    )
    digest = hashlib.sha256(f"{domain_xml(shape)}\0{platform}".encode()).hexdigest()
    return f"{domain.name}-{digest[:12]}"


class Busy(Exception):
    """Another lab is taking this snapshot."""


class Shelf:
    """The snapshots of one image. Hold `reading` to read a snapshot, `writing` to change it."""

    def __init__(self, folder: Path, owner_uid: int, owner_gid: int) -> None:
        self._folder = folder
        self._owner = (owner_uid, owner_gid)

    def reading(self, key: str) -> contextlib.AbstractContextManager[None]:
        """Lock a snapshot against changes; many labs may hold it. Raises Busy at once, OSError."""
        return self._locked(key, fcntl.LOCK_SH)

    def writing(self, key: str) -> contextlib.AbstractContextManager[None]:
        """Lock a snapshot against all other labs. Raises Busy at once, OSError."""
        return self._locked(key, fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _locked(self, key: str, how: int) -> Iterator[None]:
        with self._lock(key).open("w") as lock:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Busy(f"another lab holds {key}") from error
            yield

    def find(self, key: str) -> Snapshot | None:
        """Return a snapshot whose files are unchanged and mark it as used; None if there is none."""
        snapshot = Snapshot(self._folder / key / _MEMORY, self._folder / key / _DISK)
        try:
            manifest = json.loads((self._folder / key / _MANIFEST).read_text())
            if manifest != _manifest(snapshot):
                return None
            os.utime(self._folder / key)
        except (OSError, ValueError):
            return None
        return snapshot

    def keep(self, key: str, take: Callable[[Snapshot], None]) -> None:
        """Take a snapshot and store it, completely or not at all. Raises OSError and what `take` raises."""
        for unfinished in self._folder.glob(f".{key}.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{key}.new-", dir=self._folder))
        try:
            snapshot = Snapshot(fresh / _MEMORY, fresh / _DISK)
            take(snapshot)
            (fresh / _MANIFEST).write_text(json.dumps(_manifest(snapshot)) + "\n")
            for path in (fresh, *fresh.iterdir()):
                os.chown(path, *self._owner)
            self.discard(key)
            fresh.rename(self._folder / key)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def prove(self, key: str) -> None:
        """Record that a guest came up from this snapshot, so that later failures are not blamed on it."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / key / _PROVEN).touch()

    def is_proven(self, key: str) -> bool:
        """Return whether a guest ever came up from it."""
        return (self._folder / key / _PROVEN).exists()

    def discard(self, key: str) -> None:
        """Remove a snapshot, if there is one."""
        shutil.rmtree(self._folder / key, ignore_errors=True)

    def prune(self, key: str, node: str) -> None:
        """Remove the node's snapshots with other keys that have not been used for long."""
        for other in self._folder.glob(f"{node}-{'?' * 12}"):
            if other.name != key and time.time() - other.stat().st_mtime > UNUSED_LIMIT_S:
                self.discard(other.name)
                self._lock(other.name).unlink(missing_ok=True)

    def _lock(self, key: str) -> Path:
        return self._folder / f".{key}.lock"


def _manifest(snapshot: Snapshot) -> dict[str, list[int]]:
    """Return the size (bytes) and modification time (ns) of each file."""
    stats = {path.name: path.stat() for path in (snapshot.memory, snapshot.disk)}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
