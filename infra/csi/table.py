"""A hypervisor that is a table: a folder of small files, one for each volume and each machine.

No disk is plugged in anywhere. What is attached to what is as real as files are, and stays when the driver
is killed: each change replaces one file as a whole.

    volumes/ID      {"size": BYTES, "holder": {"node": NODE, "boot": N}}, no holder where it is detached
    machines/NODE   {"boot": N, "runs": true}
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from infra.csi.hypervisor import Refused, Volume, is_id

Json = Any


class Table:
    """The machines and volumes in a folder; it is made where it is missing, with those machines in it."""

    def __init__(self, folder: Path, nodes: Iterable[str] = ()) -> None:
        self._folder = folder
        self._volumes, self._machines = folder / "volumes", folder / "machines"
        for each in (self._volumes, self._machines):
            each.mkdir(parents=True, exist_ok=True)
        for node in nodes:
            if not self.knows(node):
                replace(self._machines / node, {"boot": 1, "runs": True})

    def take(self) -> None:
        """Keep other drivers off the folder for as long as this process lives. Raises BlockingIOError."""
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for half_written in (*self._volumes.glob(".*"), *self._machines.glob(".*")):
            half_written.unlink()

    def power_off(self, node: str) -> None:
        """The machine ends at once. What it had, nobody has. Raises KeyError."""
        replace(self._machines / node, {**self._machine(node), "runs": False})

    def power_on(self, node: str) -> None:
        """The machine boots, with no volume plugged in. Raises KeyError."""
        machine = self._machine(node)
        if not machine["runs"]:
            replace(self._machines / node, {"boot": machine["boot"] + 1, "runs": True})

    def create(self, volume: Volume) -> None:
        """An entry without a holder."""
        replace(self._volumes / volume.id, {"size": volume.size})

    def delete(self, volume: str) -> None:
        """Its entry goes."""
        if is_id(volume):
            (self._volumes / volume).unlink(missing_ok=True)

    def find(self, volume: str) -> Volume | None:
        """By its entry."""
        entry = _read(self._volumes / volume) if is_id(volume) else None
        return None if entry is None else Volume(volume, entry["size"])

    def all(self) -> Sequence[str]:
        """By their entries."""
        return sorted(entry.name for entry in self._volumes.iterdir() if is_id(entry.name))

    def knows(self, node: str) -> bool:
        """Whether it has an entry."""
        return node == Path(node).name and not node.startswith(".") and (self._machines / node).is_file()

    def runs(self, node: str) -> bool:
        """By its entry."""
        return self.knows(node) and bool(self._machine(node)["runs"])

    def holders(self, volume: str) -> Sequence[str]:
        """A holder that has ended or booted since then has the volume no more."""
        entry = _read(self._volumes / volume) if is_id(volume) else None
        holder = (entry or {}).get("holder")
        return [holder["node"]] if holder and self._is_that_boot(holder) else []

    def held(self, node: str) -> int:
        """Counted anew each time."""
        volumes = [file.name for file in self._volumes.iterdir() if is_id(file.name)]
        return sum(node in self.holders(volume) for volume in volumes)

    def attach(self, volume: str, node: str) -> None:
        """The machine, at this boot of its, becomes the holder."""
        boot = self._machine(node)["boot"]
        replace(self._volumes / volume, {**self._volume(volume), "holder": {"node": node, "boot": boot}})

    def detach(self, volume: str, node: str) -> None:
        """Nobody holds it."""
        if node in self.holders(volume):
            replace(self._volumes / volume, {"size": self._volume(volume)["size"]})

    def _is_that_boot(self, holder: Mapping[str, Json]) -> bool:
        node = holder["node"]
        return self.runs(node) and bool(self._machine(node)["boot"] == holder["boot"])

    def _machine(self, node: str) -> dict[str, Json]:
        found = _read(self._machines / node) if self.knows(node) else None
        if found is None:
            raise KeyError(node)
        return found

    def _volume(self, volume: str) -> dict[str, Json]:
        found = _read(self._volumes / volume)
        if found is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no volume {volume}")
        return found


def _read(file: Path) -> dict[str, Json] | None:
    try:
        read: dict[str, Json] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return read


def replace(file: Path, content: Mapping[str, Json]) -> None:
    """Write the whole file or nothing of it."""
    half = file.with_name(f".{file.name}")
    with half.open("w") as out:
        out.write(json.dumps(content) + "\n")
        out.flush()
        os.fsync(out.fileno())
    half.rename(file)
