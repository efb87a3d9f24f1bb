"""Clock: a node's own clock is set to another time, and goes on from there."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_LEAST_S = 120
_NEAR_S = 30.0
"""How far from the expected time a clock may be seen: an answer may be under way for its whole deadline."""
# What the clock was ahead of the time since boot, which no setting of it moves: by that it is set again,
# however long the fault lasted, and however often it is healed. It ends with a boot, as the fault does: the
# clock chip, by which a machine boots, is left alone.
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
_FOUND = re.compile(r"^/run/nodeproof-clock-([0-9a-f]{8})$", re.MULTILINE)


@dataclass(frozen=True)
class Clock:
    """Sets the clock of `node` ahead by so many seconds, or back where they are fewer than none; healing sets
    it to what it would be.

    Whoever waits by the time since boot, as kubelets and timers do, notices nothing.
    """

    name: ClassVar[str] = "clock"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    ahead_s: int = 0

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Set it to what it would be, where it was set."""
        return ["sh", "-c", _HEAL, self.id]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "ahead_s": self.ahead_s}

    def available(self, machine: Shell) -> str:
        """A machine with a clock of its own, which nobody has set, and so far that it can be seen."""
        if abs(self.ahead_s) < _LEAST_S:
            return f"{self.ahead_s} s are not seen: take {_LEAST_S} at least"
        if not has_systemd(machine):
            return f"{self.node} has no clock of its own: its kernel is its host's"
        others = clocks_on(machine)
        return f"its clock is set already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        """Keep what it is ahead of the time since boot, once, and set it."""
        self._run(machine, ["sh", "-c", _INJECT, self.id, str(self.ahead_s)])

    def heal(self, machine: Shell) -> None:
        """Set it back where it was set; nothing on a machine that is off, which boots by its clock chip."""
        if machine.is_powered():
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """It tells a time that is as far from ours."""
        return abs(_ahead_s(machine) - self.ahead_s) < _NEAR_S

    def is_healed(self, machine: Machine) -> bool:
        """It tells our time."""
        return abs(_ahead_s(machine)) < _NEAR_S

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: clock: {done.stderr.strip()}")


def clocks_on(machine: Shell) -> list[Clock]:
    """The clocks that a machine keeps something for. Raises MachineError."""
    argv = ["sh", "-c", "ls -d /run/nodeproof-clock-* || :"]
    listed = machine.run(argv, deadline_s=COMMAND_LIMIT_S).stdout
    return [Clock(found, machine.name) for found in _FOUND.findall(listed)]


def _ahead_s(machine: Shell) -> float:
    """How far a machine's clock is ahead of ours."""
    done = machine.run(["date", "+%s"], deadline_s=COMMAND_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{machine.name}: date: {done.stderr.strip()}")
    return int(done.stdout) - time.time()
