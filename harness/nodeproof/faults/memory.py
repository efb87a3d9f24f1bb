"""Faults of a machine's memory: swap, which a kubelet does not expect by default, and huge pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeproof.faults.fault import Fault, has_own_kernel, output_of, succeeds
from nodeproof.machines.machine import Machine, Shell

_FOLDER = "/var/tmp"  # noqa: S108  on the disk, and no other file is named after our id
_FILE = re.compile(r"^nodeproof-([0-9a-f]{8})\.swap$", re.MULTILINE)
_TIMEOUT_S = 60.0
"""Time for a file to be written and read back into memory, or for a kernel to free memory (s)."""
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
_RESERVE = 'echo "$0" >/proc/sys/vm/nr_hugepages'
_COUNT = "sed -n 's/^HugePages_Total: *//p' /proc/meminfo"


@dataclass(frozen=True)
class Swap(Fault):
    """Swap file of `size_mib` MiB on `node`, and a process that uses `used_mib` of it; healing removes both.

    The process runs outside of all pods. The fault ends with a power cycle, which leaves only the file. Needs
    the feature `swap`.
    """

    name = "swap"
    timeout_s = _TIMEOUT_S
    size_mib: int = 128
    used_mib: int = field(default=0, kw_only=True)

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Swap]:
        if not has_own_kernel(machine):
            return []
        listed = output_of(machine, "ls", _FOLDER)
        return [cls(machine.name, id=fault_id) for fault_id in _FILE.findall(listed)]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that stops swapping to the file and deletes it, if any."""
        return ["sh", "-c", _OFF, self._file, self._unit]

    def available(self, machine: Shell) -> str:
        """Require a kernel of the machine's own (else its host would swap) and twice the disk space."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        disk = output_of(machine, "df", "--output=avail", "-BM", _FOLDER)
        left_mib = int(disk.split()[-1].removesuffix("M"))
        if left_mib > 2 * self.size_mib:
            return ""
        return f"{left_mib} MiB of disk left on {self.node} for a swap file"

    def inject(self, machine: Shell) -> None:
        """Write the file and swap to it; replace what an earlier attempt left."""
        sizes = [str(self.size_mib), str(self.used_mib)]
        self.run(machine, ["sh", "-c", _ON, self._file, *sizes, self._unit])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel counts the file as swap, less a header, and enough of it as used."""
        listed = output_of(machine, "swapon", "--show=NAME,SIZE,USED", "--bytes", "--noheadings")
        for name, size, used in (line.split() for line in listed.splitlines()):
            if name == self._file:
                return int(size) > (self.size_mib - 1) << 20 and int(used) >= self.used_mib << 20
        return False

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the kernel does not swap to the file, and the file and the process are gone."""
        is_deleted = succeeds(machine, "test", "!", "-e", self._file)
        used = output_of(machine, "swapon", "--show=NAME", "--noheadings").splitlines()
        is_running = succeeds(machine, "systemctl", "--quiet", "is-active", self._unit)
        return is_deleted and self._file not in used and not is_running

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


@dataclass(frozen=True)
class HugePages(Fault):
    """Reservation of `count` huge pages of `node`'s default size (2 MiB); healing frees their memory.

    The node needs a kernel of its own, as for the feature `swap`. The fault ends with a power cycle. A
    kubelet counts huge pages when it starts.
    """

    name = "huge-pages"
    timeout_s = _TIMEOUT_S
    count: int = field(default=16, metadata={"key": "many"})

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that frees all huge pages."""
        return ["sh", "-c", _RESERVE, "0"]

    def available(self, machine: Shell) -> str:
        """Require a kernel of the machine's own (else its host would reserve them) and no huge pages."""
        if not has_own_kernel(machine):
            return f"{self.node} has no kernel of its own"
        count = _huge_pages(machine)
        return f"{self.node} already has {count} huge pages" if count else ""

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["sh", "-c", _RESERVE, str(self.count)])

    def heal(self, machine: Shell) -> None:
        """Free all huge pages; skip a node that is off or shares its host's kernel."""
        if machine.is_powered() and has_own_kernel(machine):
            self.run(machine, self.self_heal_command)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel reserved all of them: it reserves fewer if memory is short."""
        return _huge_pages(machine) == self.count

    def is_healed(self, machine: Machine) -> bool:
        return _huge_pages(machine) == 0


def _huge_pages(machine: Shell) -> int:
    return int(output_of(machine, "sh", "-c", _COUNT).strip() or 0)
