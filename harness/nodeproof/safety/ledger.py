"""The ledger: steps planned and performed on machines, one fsynced JSON line each, written beforehand."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nodeproof import locks
from nodeproof.model.pattern import Json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_TIMEOUT_S = 10.0
"""Longer than a process writes a step to disk."""


def state_dir() -> Path:
    """Return the folder of the ledgers: `$XDG_STATE_HOME/nodeproof/ledger`."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "nodeproof" / "ledger"


@dataclass(frozen=True)
class Open:
    """A fault that was planned and never closed: its last known step, and the lease that wrote it."""

    fault: Mapping[str, Json]
    step: str
    lease: str = ""


class FaultLedger(Protocol):
    """The steps planned and performed on the machines of a lab, wherever they are stored."""

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Store a step, and return once it survives this process. Raises OSError, Problem."""
        ...

    def unfinished(self) -> list[Open]:
        """Return every fault that was not `closed`, oldest first."""
        ...

    def forget(self) -> None:
        """Delete the ledger of a lab that no longer exists."""
        ...


class Ledger:
    """The ledger of one lab in a file of this machine; append-only, data only, and read by later healings.

    Entries are tagged with the zone lease. A zone lease only reads its own entries; the owner of the whole
    lab reads all.
    """

    def __init__(self, lab: str, folder: Path | None = None, lease: str = "") -> None:
        self.path = (folder or state_dir()) / f"{lab}{_here()}"
        self._lease = lease

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Append a step and return once it is on disk. Raises OSError, Problem."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = {"at": time.time(), "pid": os.getpid(), "lease": self._lease, "step": step}
        line = json.dumps({**header, "fault": dict(fault)})
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a+b") as file:
            locks.lock(descriptor, self.path, _LOCK_TIMEOUT_S)
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                _sync_folder(self.path.parent)
            file.seek(max(0, size - 1))
            # Text appended to an incomplete line would be lost with it.
            start = "" if file.read(1) in (b"", b"\n") else "\n"
            file.write(f"{start}{line}\n".encode())
            file.flush()
            os.fsync(descriptor)

    def unfinished(self) -> list[Open]:
        """Return every fault without a `closed` entry, oldest first; incomplete lines are ignored."""
        entries = self._entries()
        first = {str(entry.fault["id"]): entry for entry in reversed(entries)}
        last = {str(entry.fault["id"]): entry for entry in entries}
        return [
            entry
            for fault, entry in last.items()
            if entry.step != "closed" and self._lease in ("", first[fault].lease)
        ]

    def forget(self) -> None:
        """Delete the ledger of a lab that no longer exists: its faults ended with it."""
        self.path.unlink(missing_ok=True)

    def _entries(self) -> list[Open]:
        if not self.path.exists():
            return []
        lines = self.path.read_text(errors="replace").splitlines()
        return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> Open | None:
    try:
        data = json.loads(line)
        fault = {**data["fault"], "id": data["fault"]["id"]}
        return Open(fault, str(data["step"]), str(data.get("lease", "")))
    except (ValueError, KeyError, TypeError):
        return None


def _sync_folder(folder: Path) -> None:
    """Sync a folder: a new file's name is on disk only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def labs_with_ledgers(folder: Path | None = None) -> list[str]:
    """Return the labs on this machine with a ledger of this user; several machines may share a home."""
    return sorted(path.name.removesuffix(_here()) for path in (folder or state_dir()).glob(f"*{_here()}"))


def _here() -> str:
    """Return the suffix of ledgers of labs that can be running here: this boot of this machine, this user."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"@{host}-{_BOOT_ID.read_text().strip()}-{os.getuid()}.jsonl"
