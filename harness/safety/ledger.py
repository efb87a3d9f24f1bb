"""The ledger: what is planned and done to machines, one fsynced JSON line a step, before it happens."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any


def state_dir() -> Path:
    """Where ledgers are kept: `$XDG_STATE_HOME/nodeproof/ledger`."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "nodeproof" / "ledger"


@dataclass(frozen=True)
class Open:
    """A fault that was planned and never closed, and the last step that is known of it."""

    fault: Mapping[str, Json]
    step: str


class Ledger:
    """The ledger of one lab; append-only, data only, read by whoever heals on another day."""

    def __init__(self, lab: str, folder: Path | None = None) -> None:
        self.path = (folder or state_dir()) / f"{lab}.jsonl"

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Append a step and return once it is on disk. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"at": time.time(), "pid": os.getpid(), "step": step, "fault": dict(fault)}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unfinished(self) -> list[Open]:
        """Every fault without a `closed`, oldest first; a torn last line is passed over."""
        last: dict[str, Open] = {}
        for line in self._lines():
            fault_id = line["fault"]["id"]
            last[fault_id] = Open(line["fault"], line["step"])
        return [entry for entry in last.values() if entry.step != "closed"]

    def forget(self) -> None:
        """Remove the ledger of a lab that is gone: what died with it needs no healing."""
        self.path.unlink(missing_ok=True)

    def _lines(self) -> list[Mapping[str, Json]]:
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def labs_with_ledgers(folder: Path | None = None) -> list[str]:
    """The labs that a ledger is kept for."""
    return sorted(path.stem for path in (folder or state_dir()).glob("*.jsonl"))
