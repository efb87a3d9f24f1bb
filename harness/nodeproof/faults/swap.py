"""Swap: the machine pages to a file, which a kubelet does not expect by default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_own_kernel
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_FOLDER = "/var/tmp"  # noqa: S108  on the disk, and no other file is named after our id
_FILE = re.compile(r"^nodeproof-([0-9a-f]{8})\.swap$", re.MULTILINE)
_LIMIT_S = 60.0
"""How long the file may take to be written and, in use, to be read back into memory."""
_ON = """
if swapon --show=NAME --noheadings | grep -qxF "$0"; then exit 0; fi
umask 077 && rm -f "$0" && fallocate -l "${1}MiB" "$0" && mkswap "$0" && swapon "$0"
"""
_OFF = """
if swapon --show=NAME --noheadings | grep -qxF "$0"; then swapoff "$0" || exit 1; fi
rm -f "$0"
"""


@dataclass(frozen=True)
class Swap:
    """Gives `node` a swap file of `size_mib` MiB; healing takes it away.

    It ends with a power cycle, which leaves only the file.
    """

    name: ClassVar[str] = "swap"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    size_mib: int = 128

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Page to the file no more and delete it, there or not."""
        return ["sh", "-c", _OFF, self._file]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "size_mib": self.size_mib}

    def available(self, machine: Shell) -> str:
        """The kernel must be the machine's own, or its host would swap; the file must fit twice."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        room = machine.run(["df", "--output=avail", "-BM", _FOLDER], deadline_s=COMMAND_LIMIT_S)
        left_mib = int(room.stdout.split()[-1].removesuffix("M"))
        return "" if left_mib > 2 * self.size_mib else f"{left_mib} MiB left on {self.node} for a swap file"

    def inject(self, machine: Shell) -> None:
        """Write the file and page to it; whatever an earlier try left is replaced."""
        self._run(machine, ["sh", "-c", _ON, self._file, str(self.size_mib)])

    def heal(self, machine: Shell) -> None:
        """Page to it no more and delete it, there or not."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """The kernel counts the file as swap, all of it but a header."""
        show = ["swapon", "--show=NAME,SIZE", "--bytes", "--noheadings"]
        said = machine.run(show, deadline_s=COMMAND_LIMIT_S).stdout
        size_bytes = dict(line.split() for line in said.splitlines())
        return int(size_bytes.get(self._file, 0)) > (self.size_mib - 1) << 20

    def is_healed(self, machine: Machine) -> bool:
        """The kernel does not page to it, and the file is gone."""
        gone = machine.run(["test", "!", "-e", self._file], deadline_s=COMMAND_LIMIT_S).status == 0
        used = machine.run(["swapon", "--show=NAME", "--noheadings"], deadline_s=COMMAND_LIMIT_S).stdout
        return gone and self._file not in used.splitlines()

    @property
    def _file(self) -> str:
        return f"{_FOLDER}/nodeproof-{self.id}.swap"

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: swap: {done.stderr.strip()}")


def swaps_on(machine: Shell) -> list[Swap]:
    """The swap whose files a machine has. Raises MachineError."""
    if not has_own_kernel(machine):
        return []
    listed = machine.run(["ls", _FOLDER], deadline_s=COMMAND_LIMIT_S).stdout
    return [Swap(found, machine.name) for found in _FILE.findall(listed)]
