"""A step of a node's clock."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault, has_own_kernel, output_of
from nodeproof.machines.machine import Machine, Shell, checked

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
_OFFSET_FILE = re.compile(r"^/run/nodeproof-clock-([0-9a-f]{8})$", re.MULTILINE)


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
        return [cls(machine.name, 0, id=fault_id) for fault_id in _OFFSET_FILE.findall(listed)]

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
