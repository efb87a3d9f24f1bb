"""Starts guests from snapshots, and takes the snapshot that is missing or of no use."""

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
"""What a guest without a seed says on its console once its boot is over (`infra/image`)."""
_DISK_LIMIT_S = 30.0


class NotSettled(Exception):
    """A guest has not booted yet as far as where its snapshot is taken."""


class Starting(Protocol):
    """What of `Domains` is needed here; every verb raises OutsideError."""

    def create(self, xml: str) -> None:
        """Start a guest from its description."""
        ...

    def save(self, name: str, memory: Path) -> None:
        """Write a guest's memory to a file and end it."""
        ...

    def restore(self, memory: Path, xml: str) -> None:
        """Let a guest go on from its memory."""
        ...

    def attach(self, name: str, device_xml: str) -> None:
        """Plug a device into a guest."""
        ...


class Restorer:
    """Starts guests of one image. `image` is its disk, `watch` raises Problem once a guest has ended,
    `platform` is what a guest's memory depends on besides the guest.
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
        """Let a guest go on from its snapshot with its seed plugged in; gives the snapshot's key.

        Without a snapshot that restores, the guest boots first, and one is taken if that ends within
        `limit_s`; else it just goes on, from no snapshot. Raises Busy where another lab is taking it,
        Problem, OutsideError, CommandFailed, OSError; the guest may then run or not.
        """
        blank = _without_seed(domain)
        key = snapshot_key(blank, self._platform)
        restored = self._goes_on(key, blank)
        if not restored:
            with self._shelf.writing(key):
                restored = self._take(key, blank, limit_s)
        self._domains.attach(domain.name, disk_xml(_disk(domain, SEED_TARGET)))
        return key if restored else None

    def came_up(self, key: str) -> None:
        """A guest that went on from this snapshot came up."""
        self._shelf.prove(key)

    def blame(self, name: str, key: str, reason: str) -> None:
        """A guest did not come up from a snapshot: one from which none ever did is given up."""
        self._say(name, "no-snapshot", reason)
        with contextlib.suppress(Busy), self._shelf.writing(key):
            if not self._shelf.is_proven(key):
                self._shelf.discard(key)

    def make_disk(self, domain: Domain) -> None:
        """An empty overlay of the image, in place of any other. Raises CommandFailed."""
        disk = _disk(domain, ROOT_TARGET).file
        disk.unlink(missing_ok=True)
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(self._image), "-F", "qcow2", str(disk)]
        proc.run(argv, timeout_s=_DISK_LIMIT_S)

    def _goes_on(self, key: str, blank: Domain) -> bool:
        """Restore the guest from the snapshot that is there, if there is one that restores."""
        with self._shelf.reading(key):
            found = self._shelf.find(key)
            if found is None:
                return False
            try:
                self._restore(found, blank)
            except (OutsideError, OSError) as error:
                self._say(blank.name, "snapshot-refused", str(error))
                return False
            return True

    def _restore(self, snapshot: Snapshot, blank: Domain) -> None:
        shutil.copyfile(snapshot.disk, _disk(blank, ROOT_TARGET).file)
        self._domains.restore(snapshot.memory, domain_xml(blank))
        self._say(blank.name, "restored", snapshot.memory.parent.name)

    def _take(self, key: str, blank: Domain, limit_s: float) -> bool:
        """Boot the guest without a seed, keep how it is then, and let it go on from there.

        Gives False where it boots so slowly, on a busy host, that nothing was kept.
        """
        self.make_disk(blank)
        begins = blank.console.stat().st_size if blank.console.exists() else 0
        self._domains.create(domain_xml(blank))
        try:
            self._wait_settled(blank, begins, limit_s)
        except NotSettled:
            self._say(blank.name, "no-snapshot", f"it has not settled after {limit_s:g} s, and goes on")
            return False
        self._shelf.keep(key, lambda fresh: self._save(blank, fresh))
        self._say(blank.name, "snapshot-taken", key)
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
        insist(lambda: self._look_whether_settled(blank, begins), NotSettled, limit_s=limit_s, period_s=0.2)

    def _look_whether_settled(self, blank: Domain, begins: int) -> None:
        self._watch(blank.name)
        said = blank.console.read_bytes() if blank.console.exists() else b""
        # A log that has become shorter began anew meanwhile.
        if SETTLED.encode() not in said[begins if begins <= len(said) else 0 :]:
            raise NotSettled

    def _say(self, name: str, step: str, detail: str) -> None:
        self._events.write("machine", node=name, step=step, detail=detail.partition("\n")[0])


def _without_seed(domain: Domain) -> Domain:
    return replace(domain, disks=[disk for disk in domain.disks if disk.target != SEED_TARGET])


def _disk(domain: Domain, target: str) -> Disk:
    return next(disk for disk in domain.disks if disk.target == target)
