"""Swap: the machine swaps to a file, which a kubelet does not expect by default."""

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
_TIMEOUT_S = 60.0
"""Time for the file to be written and, while in use, to be read back into memory (s)."""
_RESIDENT_MIB = 16
"""Memory that the swapping process may keep resident."""
# Not zeroes: Linux does not swap them out when it splits a huge page (6.12, mm/huge_memory.c).
_ON = f"""
if ! swapon --show=NAME --noheadings | grep -qxF "$0"; then
    umask 077 && rm -f "$0" && fallocate -l "${{1}}MiB" "$0" && mkswap "$0" && swapon "$0" || exit 1
fi
if [ "$2" -eq 0 ] || systemctl --quiet is-active "$3"; then exit 0; fi
held="dd if=/dev/urandom bs=$(($2 + {_RESIDENT_MIB}))M count=1 | sleep infinity"
systemd-run --quiet --collect --unit="$3" --property=MemoryMax={_RESIDENT_MIB}M sh -c "$held"
"""
# The process ends first: its swapped pages would not fit into memory.
_OFF = """
systemctl --quiet stop "$1" 2>/dev/null
if swapon --show=NAME --noheadings | grep -qxF "$0"; then swapoff "$0" || exit 1; fi
rm -f "$0"
"""


@dataclass(frozen=True)
class Swap:
    """Swap file of `size_mib` MiB on `node`, and a process that uses `used_mib` of it; healing removes both.

    The process runs outside of all pods. The fault ends with a power cycle, which leaves only the file.
    """

    name: ClassVar[str] = "swap"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    size_mib: int = 128
    used_mib: int = 0

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that stops swapping to the file and deletes it, if any."""
        return ["sh", "-c", _OFF, self._file, self._unit]

    def to_json(self) -> Mapping[str, Json]:
        sizes = {"size_mib": self.size_mib, "used_mib": self.used_mib}
        return {"fault": self.name, "id": self.id, "node": self.node, **sizes}

    def available(self, machine: Shell) -> str:
        """Require a kernel of the machine's own (else its host would swap) and twice the disk space."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        disk = machine.run(["df", "--output=avail", "-BM", _FOLDER], deadline_s=COMMAND_LIMIT_S)
        left_mib = int(disk.stdout.split()[-1].removesuffix("M"))
        return (
            ""
            if left_mib > 2 * self.size_mib
            else f"{left_mib} MiB of disk left on {self.node} for a swap file"
        )

    def inject(self, machine: Shell) -> None:
        """Write the file and swap to it; replace what an earlier attempt left."""
        sizes = [str(self.size_mib), str(self.used_mib)]
        self._run(machine, ["sh", "-c", _ON, self._file, *sizes, self._unit])

    def heal(self, machine: Shell) -> None:
        """Stop swapping to the file and delete it, if any."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel counts the file as swap, less a header, and enough of it as used."""
        show = ["swapon", "--show=NAME,SIZE,USED", "--bytes", "--noheadings"]
        output = machine.run(show, deadline_s=COMMAND_LIMIT_S).stdout
        for name, size, used in (line.split() for line in output.splitlines()):
            if name == self._file:
                return int(size) > (self.size_mib - 1) << 20 and int(used) >= self.used_mib << 20
        return False

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the kernel does not swap to the file, and the file and the process are gone."""
        is_deleted = machine.run(["test", "!", "-e", self._file], deadline_s=COMMAND_LIMIT_S).status == 0
        used = machine.run(["swapon", "--show=NAME", "--noheadings"], deadline_s=COMMAND_LIMIT_S).stdout
        unit = machine.run(["systemctl", "--quiet", "is-active", self._unit], deadline_s=COMMAND_LIMIT_S)
        return is_deleted and self._file not in used.splitlines() and unit.status != 0

    @property
    def used_file(self) -> str:
        """The file in which the kernel reports how much the process has swapped out (bytes)."""
        return f"/sys/fs/cgroup/system.slice/{self._unit}/memory.swap.current"

    @property
    def _unit(self) -> str:
        return f"nodeproof-{self.id}-pages.service"

    @property
    def _file(self) -> str:
        return f"{_FOLDER}/nodeproof-{self.id}.swap"

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=_TIMEOUT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: swap: {completed.stderr.strip()}")


def swaps_on(machine: Shell) -> list[Swap]:
    """Return the faults whose files are on a machine. Raises MachineError."""
    if not has_own_kernel(machine):
        return []
    listed = machine.run(["ls", _FOLDER], deadline_s=COMMAND_LIMIT_S).stdout
    return [Swap(fault_id, machine.name) for fault_id in _FILE.findall(listed)]
