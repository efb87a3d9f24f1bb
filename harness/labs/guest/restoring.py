"""Starts guests from snapshots, and takes the snapshot that is missing or of no use."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import tenacity

from harness import proc
from harness.labs.guest.snapshots import Busy, Shelf, Snapshot, snapshot_key
from harness.labs.libvirt_domain import ROOT_TARGET, SEED_TARGET, Disk, Domain, disk_xml, domain_xml
from harness.labs.process.processes import EventLog
from harness.model.problem import Problem

SETTLED = "nodeproof: settled"
"""What a guest without a seed says on its console once its boot is over (`infra/image`)."""
_DISK_LIMIT_S = 30.0


class NotSettled(Exception):
    """A guest has not booted yet as far as where its snapshot is taken."""


class Virsh(Protocol):
    """What of a hypervisor is needed here."""

    def virsh(self, *arguments: str) -> str:
        """Run one of virsh's commands; gives its output. Raises CommandFailed."""
        ...

    def platform(self) -> str:
        """What a guest's memory depends on besides the guest."""
        ...


class Restorer:
    """Starts guests of one image. `image` is its disk, `watch` raises Problem once a guest has ended."""

    def __init__(
        self,
        hypervisor: Virsh,
        shelf: Shelf,
        image: Path,
        events: EventLog,
        watch: Callable[[str], None],
    ) -> None:
        self._hypervisor = hypervisor
        self._shelf = shelf
        self._image = image
        self._events = events
        self._watch = watch

    def start(self, domain: Domain, home: Path, limit_s: float) -> str | None:
        """Let a guest go on from its snapshot with its seed plugged in; gives the snapshot's key.

        Without a snapshot that restores, the guest boots first, and one is taken if that ends within
        `limit_s`; else it just goes on, from no snapshot. Raises Busy where another lab is taking it,
        Problem, CommandFailed, OSError; the guest may then run or not.
        """
        blank = _without_seed(domain)
        key = snapshot_key(blank, self._hypervisor.platform())
        xml = home / "restored.xml"
        xml.write_text(domain_xml(blank))
        restored = self._goes_on(key, blank, xml)
        if not restored:
            with self._shelf.writing(key):
                restored = self._take(key, blank, xml, limit_s)
        (home / "seed.xml").write_text(disk_xml(_disk(domain, SEED_TARGET)))
        self._hypervisor.virsh("attach-device", domain.name, str(home / "seed.xml"), "--live")
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

    def _goes_on(self, key: str, blank: Domain, xml: Path) -> bool:
        """Restore the guest from the snapshot that is there, if there is one that restores."""
        with self._shelf.reading(key):
            found = self._shelf.find(key)
            if found is None:
                return False
            try:
                self._restore(found, blank, xml)
            except (proc.CommandFailed, OSError) as error:
                self._say(blank.name, "snapshot-refused", str(error))
                return False
            return True

    def _restore(self, snapshot: Snapshot, blank: Domain, xml: Path) -> None:
        shutil.copyfile(snapshot.disk, _disk(blank, ROOT_TARGET).file)
        self._hypervisor.virsh("restore", str(snapshot.memory), "--xml", str(xml))
        self._say(blank.name, "restored", snapshot.memory.parent.name)

    def _take(self, key: str, blank: Domain, xml: Path, limit_s: float) -> bool:
        """Boot the guest without a seed, keep how it is then, and let it go on from there.

        Gives False where it boots so slowly, on a busy host, that nothing was kept.
        """
        self.make_disk(blank)
        begins = blank.console.stat().st_size if blank.console.exists() else 0
        self._hypervisor.virsh("create", str(xml))
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
        self._restore(taken, blank, xml)
        return True

    def _save(self, blank: Domain, fresh: Snapshot) -> None:
        self._hypervisor.virsh("save", blank.name, str(fresh.memory))
        shutil.copyfile(_disk(blank, ROOT_TARGET).file, fresh.disk)

    def _wait_settled(self, blank: Domain, begins: int, limit_s: float) -> None:
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(limit_s),
            wait=tenacity.wait_fixed(0.2),
            retry=tenacity.retry_if_exception_type(NotSettled),
            reraise=True,
        )
        retry(self._look_whether_settled, blank, begins)

    def _look_whether_settled(self, blank: Domain, begins: int) -> None:
        self._watch(blank.name)
        if not blank.console.exists() or SETTLED.encode() not in blank.console.read_bytes()[begins:]:
            raise NotSettled

    def _say(self, name: str, step: str, detail: str) -> None:
        self._events.write("machine", node=name, step=step, detail=detail.partition("\n")[0])


def _without_seed(domain: Domain) -> Domain:
    return replace(domain, disks=[disk for disk in domain.disks if disk.target != SEED_TARGET])


def _disk(domain: Domain, target: str) -> Disk:
    return next(disk for disk in domain.disks if disk.target == target)
