"""A simulated hypervisor: a folder with a small file for each volume and each machine.

There are no disks. The files survive a killed driver: each change replaces one file atomically.

    volumes/ID      {"size": BYTES, "holder": {"node": NODE, "boot": N}}, without holder if detached
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
    """The machines and volumes in a folder, which is created with these machines if needed."""

    def __init__(self, folder: Path, nodes: Iterable[str] = ()) -> None:
        self._folder = folder
        self._volumes, self._machines = folder / "volumes", folder / "machines"
        for subfolder in (self._volumes, self._machines):
            subfolder.mkdir(parents=True, exist_ok=True)
        for node in nodes:
            if not self.has(node):
                replace(self._machines / node, {"boot": 1, "runs": True})

    def take(self) -> None:
        """Lock the folder against other drivers while this process lives. Raises BlockingIOError."""
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for partial in (*self._volumes.glob(".*"), *self._machines.glob(".*")):
            partial.unlink()

    def power_off(self, node: str) -> None:
        """Turn the machine off at once; it loses its volumes. Raises KeyError."""
        replace(self._machines / node, {**self._machine(node), "runs": False})

    def power_on(self, node: str) -> None:
        """Boot the machine, without volumes. Raises KeyError."""
        machine = self._machine(node)
        if not machine["runs"]:
            replace(self._machines / node, {"boot": machine["boot"] + 1, "runs": True})

    def create(self, volume: Volume) -> None:
        """Write an entry without a holder."""
        replace(self._volumes / volume.id, {"size": volume.size})

    def delete(self, volume: str) -> None:
        """Remove the entry."""
        if is_id(volume):
            (self._volumes / volume).unlink(missing_ok=True)

    def find(self, volume: str) -> Volume | None:
        """Read the volume's entry."""
        entry = _read(self._volumes / volume) if is_id(volume) else None
        return None if entry is None else Volume(volume, entry["size"])

    def all(self) -> Sequence[str]:
        """List the entries of volumes."""
        return sorted(entry.name for entry in self._volumes.iterdir() if is_id(entry.name))

    def has(self, node: str) -> bool:
        """Return whether the machine has an entry."""
        return node == Path(node).name and not node.startswith(".") and (self._machines / node).is_file()

    def runs(self, node: str) -> bool:
        """Read the machine's entry."""
        return self.has(node) and bool(self._machine(node)["runs"])

    def holders(self, volume: str) -> Sequence[str]:
        """Return the holder, unless it was turned off or rebooted since."""
        entry = _read(self._volumes / volume) if is_id(volume) else None
        holder = (entry or {}).get("holder")
        return [holder["node"]] if holder and self._is_that_boot(holder) else []

    def volume_count(self, node: str) -> int:
        """Count the volumes of the machine."""
        volumes = [file.name for file in self._volumes.iterdir() if is_id(file.name)]
        return sum(node in self.holders(volume) for volume in volumes)

    def attach(self, volume: str, node: str) -> None:
        """Make the machine, in its current boot, the holder."""
        boot = self._machine(node)["boot"]
        replace(self._volumes / volume, {**self._volume(volume), "holder": {"node": node, "boot": boot}})

    def detach(self, volume: str, node: str) -> None:
        """Remove the holder."""
        if node in self.holders(volume):
            replace(self._volumes / volume, {"size": self._volume(volume)["size"]})

    def _is_that_boot(self, holder: Mapping[str, Json]) -> bool:
        node = holder["node"]
        return self.runs(node) and bool(self._machine(node)["boot"] == holder["boot"])

    def _machine(self, node: str) -> dict[str, Json]:
        entry = _read(self._machines / node) if self.has(node) else None
        if entry is None:
            raise KeyError(node)
        return entry

    def _volume(self, volume: str) -> dict[str, Json]:
        entry = _read(self._volumes / volume)
        if entry is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no volume {volume}")
        return entry


def _read(file: Path) -> dict[str, Json] | None:
    try:
        entry: dict[str, Json] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return entry


def replace(file: Path, content: Mapping[str, Json]) -> None:
    """Write the file atomically."""
    partial = file.with_name(f".{file.name}")
    with partial.open("w") as out:
        out.write(json.dumps(content) + "\n")
        out.flush()
        os.fsync(out.fileno())
    partial.rename(file)
