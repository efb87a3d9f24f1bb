"""The nodes of a libvirt lab: virtual machines restored from snapshots, or booted if there is none.

A snapshot is taken before its guest joins. It is a folder `snapshots/NODE-HASH/` of the image's cache entry:
the guest's memory, its disk (an overlay of the image's) and a manifest. The hash covers what a restore
depends on: the virtual machine except paths and owner, QEMU, libvirt and, with KVM, the host's CPU. A
snapshot contains no credential or identity.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nodeproof import proc
from nodeproof.labs.base.mounts import run_mount
from nodeproof.labs.base.network import BRIDGES, outer_end
from nodeproof.labs.base.nodes import NodeEnvironment
from nodeproof.labs.base.processes import EventLog
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.kinds.libvirt.domain_xml import (
    METADATA_NAMESPACE,
    Disk,
    Domain,
    Nic,
    disk_xml,
    domain_xml,
    mac,
    nic_xml,
)
from nodeproof.labs.kinds.libvirt.guests import MEMORY_MIB, Guests, make_overlay
from nodeproof.locks import open_file, try_lock
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import wait_until

if TYPE_CHECKING:
    from nodeproof.labs.kinds.libvirt.domains import Domains

UNUSED_LIMIT_S = 24 * 3600.0
"""A node's snapshots with another hash are removed once unused for this long."""
_MEMORY, _DISK, _MANIFEST, _PROVEN = "memory", "disk.qcow2", "manifest.json", "proven"
SETTLED = "nodeproof: settled"
"""The console line of a guest without a seed once it has booted (`infra/image`)."""


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
        root=replace(domain.root, file=Path(domain.root.target)),
        console=Path("console"),
    )
    digest = hashlib.sha256(f"{domain_xml(shape)}\0{platform}".encode()).hexdigest()
    return f"{domain.name}-{digest[:12]}"


class Busy(Exception):
    """Another lab is taking this snapshot."""


class SnapshotStore:
    """The snapshots of one image. Hold `reading` to read a snapshot, `writing` to change it."""

    def __init__(self, folder: Path, owner_uid: int, owner_gid: int) -> None:
        self._folder = folder
        self._owner = (owner_uid, owner_gid)

    def reading(self, key: str) -> contextlib.AbstractContextManager[None]:
        """Lock a snapshot against changes; many labs may hold it. Raises Busy at once, OSError."""
        return self._locked(key, shared=True)

    def writing(self, key: str) -> contextlib.AbstractContextManager[None]:
        """Lock a snapshot against all other labs. Raises Busy at once, OSError."""
        return self._locked(key, shared=False)

    @contextlib.contextmanager
    def _locked(self, key: str, *, shared: bool) -> Iterator[None]:
        descriptor = open_file(self._lock(key))
        try:
            os.fchown(descriptor, *self._owner)
            if not try_lock(descriptor, shared=shared):
                raise Busy(f"another lab holds {key}")
            yield
        finally:
            os.close(descriptor)

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

    def store(self, key: str, take: Callable[[Snapshot], None]) -> None:
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

    def mark_proven(self, key: str) -> None:
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


@dataclass(frozen=True)
class Restorer:
    """Starts guests of one image.

    `image` is its disk, `watch` raises Problem once a guest has ended, and `platform` identifies what a
    guest's memory depends on besides the guest.
    """

    domains: Domains
    platform: str
    snapshots: SnapshotStore
    image: Path
    events: EventLog
    watch: Callable[[str], None]

    def start(self, domain: Domain, timeout_s: float) -> str | None:
        """Restore a guest from its snapshot, plug in its seed and return the snapshot's key.

        Without a usable snapshot, boot the guest first and take one. If it has not settled within
        `timeout_s`, let it run without a snapshot and return None. If this raises, the guest may run or not.

        Raises:
            Busy: another lab is taking the snapshot.
            Problem: the guest ended, or its new snapshot cannot be read.
            OutsideError: libvirt failed.
            CommandFailed: qemu-img failed.
            OSError: a file cannot be read or written.
        """
        blank = replace(domain, seed=None)
        key = snapshot_key(blank, self.platform)
        restored = self._try_to_restore(key, blank)
        if not restored:
            with self.snapshots.writing(key):
                restored = self._take(key, blank, timeout_s)
        if domain.seed:
            self.domains.attach(domain.name, disk_xml(domain.seed))
        return key if restored else None

    def report_failure(self, name: str, key: str, reason: str) -> None:
        """Report that a guest did not come up from a snapshot; discard one from which none ever did."""
        self._log(name, "no-snapshot", reason)
        with contextlib.suppress(Busy), self.snapshots.writing(key):
            if not self.snapshots.is_proven(key):
                self.snapshots.discard(key)

    def make_disk(self, domain: Domain) -> None:
        """Replace the guest's disk by an empty overlay of the image. Raises CommandFailed."""
        domain.root.file.unlink(missing_ok=True)
        make_overlay(self.image, domain.root.file)

    def _try_to_restore(self, key: str, blank: Domain) -> bool:
        """Restore the guest from its snapshot; return False if there is none or it does not restore."""
        with self.snapshots.reading(key):
            snapshot = self.snapshots.find(key)
            if snapshot is None:
                return False
            try:
                self._restore(snapshot, blank)
            except (OutsideError, OSError) as error:
                self._log(blank.name, "snapshot-refused", str(error))
                return False
            return True

    def _restore(self, snapshot: Snapshot, blank: Domain) -> None:
        shutil.copyfile(snapshot.disk, blank.root.file)
        self.domains.restore(snapshot.memory, domain_xml(blank))
        self._log(blank.name, "restored", snapshot.memory.parent.name)

    def _take(self, key: str, blank: Domain, timeout_s: float) -> bool:
        """Boot the guest without a seed, take a snapshot and restore the guest from it.

        Return False if it did not settle in time, on a busy host, and no snapshot was taken.
        """
        self.make_disk(blank)
        begins = blank.console.stat().st_size if blank.console.exists() else 0
        self.domains.create(domain_xml(blank))
        if not wait_until(lambda: self._is_settled(blank, begins), timeout_s, 0.2):
            self._log(blank.name, "no-snapshot", f"it has not settled after {timeout_s:g} s, and goes on")
            return False
        self.snapshots.store(key, lambda fresh: self._save(blank, fresh))
        self._log(blank.name, "snapshot-taken", key)
        self.snapshots.prune(key, blank.name)
        snapshot = self.snapshots.find(key)
        if snapshot is None:
            raise Problem("a fresh snapshot cannot be read back", key, "free some space in the cache")
        self._restore(snapshot, blank)
        return True

    def _save(self, blank: Domain, fresh: Snapshot) -> None:
        self.domains.save(blank.name, fresh.memory)
        shutil.copyfile(blank.root.file, fresh.disk)

    def _is_settled(self, blank: Domain, begins: int) -> bool:
        """Return whether a guest has booted far enough for its snapshot. Raises Problem if it has ended."""
        self.watch(blank.name)
        output = blank.console.read_bytes() if blank.console.exists() else b""
        # A shorter log was truncated meanwhile: read it from its beginning.
        return SETTLED.encode() in output[begins if begins <= len(output) else 0 :]

    def _log(self, name: str, step: str, detail: str) -> None:
        self.events.write("machine", node=name, step=step, detail=detail.partition("\n")[0])


SETTLE_TIMEOUT_S = 200.0
"""How long a guest may take until its snapshot can be taken."""
RESTORE_TIMEOUT_S = 90.0
"""How long a restored guest may take until its sshd listens; its disk may hang, and it is booted instead.

On busy machines whole labs took 41 s at most (docs/libvirt.md).
"""


class GuestNodes(Guests):
    """All nodes of one lab; their machines are defined here."""

    def __init__(self, environment: NodeEnvironment) -> None:
        super().__init__(environment)
        self._restorers: Mapping[str, Restorer] = {}
        """By the disk of their image."""
        self._restored: dict[str, str | None] = {}

    def prepare(self) -> None:
        """Start the hypervisor, and find the snapshots. Raises Problem, OutsideError, CommandFailed."""
        super().prepare()
        guests = (self._lab.guest, *self._lab.guests.values())
        self._restorers = {guest["disk"]: self._make_restorer(guest) for guest in guests}

    def _make_restorer(self, guest: Mapping[str, str]) -> Restorer:
        image = Path(guest["disk"])
        folder = _writable(Path(guest["snapshots"]), self._memory / "snapshots" / image.parent.name)
        snapshots = SnapshotStore(folder, self._lab.owner_uid, self._lab.owner_gid)
        domains, platform = self._hypervisor.domains, self._hypervisor.platform()
        return Restorer(domains, platform, snapshots, image, self._events, self._check_running)

    def _restorer_of(self, spec: NodeSpec) -> Restorer:
        return self._restorers[self._lab.guest_of(spec)["disk"]]

    def wait_up(self, name: str) -> None:
        """Wait until the guest's sshd listens; if its snapshot does not work, boot it instead.

        Raises Problem with the console's last lines.
        """
        key = self._restored.pop(name, None)
        if key is not None:
            restorer = self._restorer_of(self._specs[name])
            try:
                self._wait_up(name, RESTORE_TIMEOUT_S)
            except Problem as problem:
                restorer.report_failure(name, key, problem.what)
                self._boot_instead(name)
            else:
                restorer.snapshots.mark_proven(key)
                return
        super().wait_up(name)

    def _make(self, spec: NodeSpec) -> None:
        """Define the machine and restore it from its snapshot, or else boot it."""
        domain = self._domain(spec)
        self._hypervisor.domains.define(domain_xml(domain))
        self._specs[spec.name] = spec
        try:
            self._restored[spec.name] = self._restorer_of(spec).start(domain, SETTLE_TIMEOUT_S)
            self._expect_running(spec.name)
        except (Busy, Problem, OutsideError, proc.CommandFailed, OSError) as error:
            reason = str(error).partition("\n")[0]
            self._events.write("machine", node=spec.name, step="no-snapshot", detail=reason)
            self._boot_instead(spec.name)

    def _boot_instead(self, name: str) -> None:
        """Boot a guest whose snapshot does not work, with its seed. Raises OutsideError, CommandFailed."""
        if self._hypervisor.pid(name) is not None:
            self._expected_running.discard(name)
            self._hypervisor.domains.act("destroy", name)
        spec = self._specs[name]
        self._restorer_of(spec).make_disk(self._domain(spec))
        self.power_on(name)

    def _unmake(self, name: str) -> None:
        self._hypervisor.domains.act("undefine", name)
        self._disk(name).unlink()

    def _card(self, name: str, state: str) -> str:
        return nic_xml(self._nic(self.get(name).spec, "data"), state)

    def _disk(self, name: str) -> Path:
        return self._hypervisor.disks / f"{name}.qcow2"

    def _nic(self, spec: NodeSpec, bridge: str) -> Nic:
        return Nic(bridge, mac(bridge, spec.slot), outer_end(spec, bridge))

    def _domain(self, spec: NodeSpec) -> Domain:
        guest = self._lab.guest_of(spec)
        return Domain(
            name=spec.name,
            # A restored guest has its snapshot's UUID, so every node of this name gets the same one.
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA_NAMESPACE}/{spec.name}")),
            lab=self._lab.lab,
            machine_id=spec.machine_id,
            memory_mib=spec.shape.memory_mib or MEMORY_MIB,
            vcpus=spec.shape.cpus,
            numa_nodes=spec.shape.numa_nodes,
            kvm=self._hypervisor.kvm,
            kernel=Path(guest["kernel"]),
            initrd=Path(guest["initrd"]),
            arguments=[*guest["arguments"].split(), *spec.shape.kernel],
            root=Disk(self._disk(spec.name), "qcow2", "sda"),
            seed=Disk(self._seed(spec.name), "raw", "sdb", read_only=True),
            nics=[self._nic(spec, bridge) for bridge in BRIDGES],
            console=self._console_log(spec.name),
        )


def _writable(folder: Path, inside: Path) -> Path:
    """Mount `folder`, the one folder of the host that a lab may write to, writable at `inside`."""
    inside.mkdir(parents=True)
    run_mount("--bind", str(folder), str(inside))
    run_mount("-o", "remount,bind,rw", str(inside))
    return inside
