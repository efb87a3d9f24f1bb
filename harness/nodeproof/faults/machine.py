"""Faults of a node's machine: its power, its clock and its memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from nodeproof.faults.fault import (
    COMMAND_TIMEOUT_S,
    Fault,
    has_booted,
    has_own_kernel,
    ids_in,
    is_connected,
    is_silent,
    is_up,
    output_of,
    succeeds,
)
from nodeproof.machines.machine import Machine, PowerAction, Shell, checked


class PowerFault(Fault):
    """Actions of a machine's host, which can perform them on every machine."""

    injection: ClassVar[PowerAction]
    healing: ClassVar[Sequence[PowerAction]]

    def inject(self, machine: Shell) -> None:
        machine.power(self.injection)

    def heal(self, machine: Shell) -> None:
        for action in self.healing:
            machine.power(action)

    def is_injected(self, machine: Machine) -> bool:
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        return has_booted(machine)


@dataclass(frozen=True)
class PowerOff(PowerFault):
    """Power loss of `node`; healing boots it.

    The machine stops at once: nothing is flushed, and no peer is notified.
    """

    name = "power-off"
    places = ("node", "component", "plane")
    ends_components = True
    injection = "off"
    healing = ("on",)

    def is_injected(self, machine: Machine) -> bool:
        return is_silent(machine) and not machine.is_powered()


@dataclass(frozen=True)
class Reset(PowerFault):
    """Reset of `node`, held before its boot; healing releases it, and it boots.

    It is held because a machine that boots undoes the fault by itself: a late probe could not distinguish it
    from one that was never reset. To reset and boot at once, end the context at once. Needs the feature
    `reset`.
    """

    name = "reset"
    ends_components = True
    injection = "reset"
    # A machine whose reset was under way may only lack power.
    healing = ("thaw", "on")


@dataclass(frozen=True)
class Freeze(PowerFault):
    """Pause of all processors of `node`; healing resumes them, with the clock set.

    Memory stays intact, and no peer is notified. Needs the feature `freeze`.
    """

    name = "freeze"
    places = ("node", "component", "plane")
    injection = "freeze"
    healing = ("thaw",)

    def is_healed(self, machine: Machine) -> bool:
        return is_up(machine)


@dataclass(frozen=True)
class LinkDown(PowerFault):
    """Loss of the carrier of `node`'s `data` network, caused by its host; healing restores it.

    As with a real cable, a power cycle of the node does not change it. Needs the feature `link`.
    """

    name = "link-down"
    injection = "link-down"
    healing = ("link-up",)

    def is_injected(self, machine: Machine) -> bool:
        if not machine.answers_on_control():
            return False
        return not machine.reaches_control_plane() and not machine.reached_from_control_plane()

    def is_healed(self, machine: Machine) -> bool:
        return is_connected(machine)


_MIN_STEP_S = 120
_TOLERANCE_S = 30.0
"""Tolerated error of a clock reading (s): the answer may take as long as the command's timeout."""
# The file holds the offset of the clock to the time since boot, which setting the clock does not change. It
# restores the clock however long the fault lasted and however often it is healed. Both the file and the fault
# end with a boot: the hardware clock, which a machine boots by, is not changed.
_SET = """
file=/run/nodeproof-clock-$0
since_boot_ms() { read -r up _ </proc/uptime; echo "$((${up%.*} * 1000 + 1${up#*.}0 - 1000))"; }
set_ms() { date --set="@$(($1 / 1000)).$(printf %03d "$(($1 % 1000))")" >/dev/null; }
"""
_INJECT = f"""{_SET}
if [ ! -e "$file" ]; then
    echo "$(($(date +%s%3N) - $(since_boot_ms)))" >"$file.new" && mv "$file.new" "$file" || exit 1
fi
set_ms "$(($(cat "$file") + $(since_boot_ms) + $1 * 1000))"
"""
_HEAL = f"""{_SET}
was=$(cat "$file" 2>/dev/null) && [ -n "$was" ] || exit 0
set_ms "$((was + $(since_boot_ms)))" && rm -f "$file"
"""


@dataclass(frozen=True)
class Clock(Fault):
    """Step of `node`'s clock by `ahead_s` seconds, back if negative; healing undoes the step.

    Waits that are measured by the time since boot, such as those of kubelets and timers, are not affected.
    Needs the feature `systemd`.
    """

    name = "clock"
    ends_with_power = True
    ahead_s: int

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Clock]:
        listed = output_of(machine, "sh", "-c", "ls -d /run/nodeproof-clock-* || :")
        return [cls(machine.name, 0, id=fault_id) for fault_id in ids_in(listed, "/run/nodeproof-clock-ID$")]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that sets the clock to the time that it would have, if it was changed."""
        return ["sh", "-c", _HEAL, self.id]

    def available(self, machine: Shell) -> str:
        """Require a machine with its own, unchanged clock, and a step of at least `_MIN_STEP_S`."""
        if abs(self.ahead_s) < _MIN_STEP_S:
            return f"a step of {self.ahead_s} s is too small to see: use at least {_MIN_STEP_S} s"
        if not has_own_kernel(machine):
            return f"{self.node} has no clock of its own: its kernel is its host's"
        others = self.leftovers_on(machine)
        return f"its clock is set already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        """Store the offset of the clock to the time since boot, once, and set the clock."""
        self.run(machine, ["sh", "-c", _INJECT, self.id, str(self.ahead_s)])

    def is_injected(self, machine: Machine) -> bool:
        return abs(_ahead_s(machine) - self.ahead_s) < _TOLERANCE_S

    def is_healed(self, machine: Machine) -> bool:
        return abs(_ahead_s(machine)) < _TOLERANCE_S


def _ahead_s(machine: Shell) -> float:
    """Return how far a machine's clock is ahead of ours (s)."""
    completed = machine.run(["date", "+%s"], timeout_s=COMMAND_TIMEOUT_S)
    return int(checked(completed, f"{machine.name}: date")) - time.time()


_FOLDER = "/var/tmp"  # noqa: S108  on the disk, and no other file is named after our id
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
        return [cls(machine.name, id=fault_id) for fault_id in ids_in(listed, r"nodeproof-ID\.swap$")]

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
