"""Starts guests from snapshots, and takes a snapshot if it is missing or does not work."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from nodeproof import proc
from nodeproof.labs.ground.processes import EventLog
from nodeproof.labs.kinds.libvirt.domain_xml import (
    ROOT_TARGET,
    SEED_TARGET,
    Disk,
    Domain,
    disk_xml,
    domain_xml,
)
from nodeproof.labs.kinds.libvirt.snapshots import Busy, Shelf, Snapshot, snapshot_key
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import insist

SETTLED = "nodeproof: settled"
"""The console line of a guest without a seed once it has booted (`infra/image`)."""
_DISK_LIMIT_S = 30.0


class NotSettled(Exception):
    """A guest has not booted far enough for its snapshot."""


class Starting(Protocol):
    """The part of `Domains` that is needed here. Every verb raises OutsideError."""

    def create(self, xml: str) -> None:
        """Start a guest from its description."""
        ...

    def save(self, name: str, memory: Path) -> None:
        """Write a guest's memory to a file and end it."""
        ...

    def restore(self, memory: Path, xml: str) -> None:
        """Restore a guest from its memory."""
        ...

    def attach(self, name: str, device_xml: str) -> None:
        """Plug a device into a guest."""
        ...


class Restorer:
    """Starts guests of one image.

    `image` is its disk, `watch` raises Problem once a guest has ended, and `platform` identifies what a
    guest's memory depends on besides the guest.
    """

    def __init__(
        self,
        domains: Starting,
        platform: str,
        shelf: Shelf,
        image: Path,
        events: EventLog,
        watch: Callable[[str], None],
    ) -> None:
        self._domains = domains
        self._platform = platform
        self._shelf = shelf
        self._image = image
        self._events = events
        self._watch = watch

    def start(self, domain: Domain, limit_s: float) -> str | None:
        """Restore a guest from its snapshot, plug in its seed and return the snapshot's key.

        Without a usable snapshot, boot the guest first and take one. If it has not settled within `limit_s`,
        let it run without a snapshot and return None. If this raises, the guest may run or not.

        Raises:
            Busy: another lab is taking the snapshot.
            Problem: the guest ended, or its new snapshot cannot be read.
            OutsideError: libvirt failed.
            CommandFailed: qemu-img failed.
            OSError: a file cannot be read or written.
        """
        blank = _without_seed(domain)
        key = snapshot_key(blank, self._platform)
        restored = self._try_to_restore(key, blank)
        if not restored:
            with self._shelf.writing(key):
                restored = self._take(key, blank, limit_s)
        self._domains.attach(domain.name, disk_xml(_disk(domain, SEED_TARGET)))
        return key if restored else None

    def came_up(self, key: str) -> None:
        """Record that a guest came up from this snapshot."""
        self._shelf.prove(key)

    def blame(self, name: str, key: str, reason: str) -> None:
        """Report that a guest did not come up from a snapshot; discard one from which none ever did."""
        self._log(name, "no-snapshot", reason)
        with contextlib.suppress(Busy), self._shelf.writing(key):
            if not self._shelf.is_proven(key):
                self._shelf.discard(key)

    def make_disk(self, domain: Domain) -> None:
        """Replace the guest's disk by an empty overlay of the image. Raises CommandFailed."""
        disk = _disk(domain, ROOT_TARGET).file
        disk.unlink(missing_ok=True)
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(self._image), "-F", "qcow2", str(disk)]
        proc.run(argv, timeout_s=_DISK_LIMIT_S)

    def _try_to_restore(self, key: str, blank: Domain) -> bool:
        """Restore the guest from its snapshot; return False if there is none or it does not restore."""
        with self._shelf.reading(key):
            snapshot = self._shelf.find(key)
            if snapshot is None:
                return False
            try:
                self._restore(snapshot, blank)
            except (OutsideError, OSError) as error:
                self._log(blank.name, "snapshot-refused", str(error))
                return False
            return True

    def _restore(self, snapshot: Snapshot, blank: Domain) -> None:
        shutil.copyfile(snapshot.disk, _disk(blank, ROOT_TARGET).file)
        self._domains.restore(snapshot.memory, domain_xml(blank))
        self._log(blank.name, "restored", snapshot.memory.parent.name)

    def _take(self, key: str, blank: Domain, limit_s: float) -> bool:
        """Boot the guest without a seed, take a snapshot and restore the guest from it.

        Return False if it did not settle in time, on a busy host, and no snapshot was taken.
        """
        self.make_disk(blank)
        begins = blank.console.stat().st_size if blank.console.exists() else 0
        self._domains.create(domain_xml(blank))
        try:
            self._wait_settled(blank, begins, limit_s)
        except NotSettled:
            self._log(blank.name, "no-snapshot", f"it has not settled after {limit_s:g} s, and goes on")
            return False
        self._shelf.keep(key, lambda fresh: self._save(blank, fresh))
        self._log(blank.name, "snapshot-taken", key)
        self._shelf.prune(key, blank.name)
        taken = self._shelf.find(key)
        if taken is None:
            raise Problem("a fresh snapshot cannot be read back", key, "look for free space in the cache")
        self._restore(taken, blank)
        return True

    def _save(self, blank: Domain, fresh: Snapshot) -> None:
        self._domains.save(blank.name, fresh.memory)
        shutil.copyfile(_disk(blank, ROOT_TARGET).file, fresh.disk)

    def _wait_settled(self, blank: Domain, begins: int, limit_s: float) -> None:
        insist(lambda: self._check_settled(blank, begins), NotSettled, limit_s=limit_s, period_s=0.2)

    def _check_settled(self, blank: Domain, begins: int) -> None:
        self._watch(blank.name)
        output = blank.console.read_bytes() if blank.console.exists() else b""
        # A shorter log was truncated meanwhile: read it from its beginning.
        if SETTLED.encode() not in output[begins if begins <= len(output) else 0 :]:
            raise NotSettled

    def _log(self, name: str, step: str, detail: str) -> None:
        self._events.write("machine", node=name, step=step, detail=detail.partition("\n")[0])


def _without_seed(domain: Domain) -> Domain:
    return replace(domain, disks=[disk for disk in domain.disks if disk.target != SEED_TARGET])


def _disk(domain: Domain, target: str) -> Disk:
    return next(disk for disk in domain.disks if disk.target == target)
