"""Dead-man's switches: where they are armed, and the one inside a machine, for when nobody can reach it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nodeproof.faults import fault_from_json
from nodeproof.faults.fault import COMMAND_LIMIT_S
from nodeproof.faults.fence import undo_for_good
from nodeproof.machines.machine import MachineError, Shell

Json = Any
LATE_S = 3.0
"""How much later than the lab's own switch this one fires: that one tells the history."""
RETRY_S = 3.0
"""How long after a healing that failed the machine tries again; systemd allows five starts in 10 s."""
# The new timer waits before the old one is stopped, with a healing that it has begun. One that fails is tried
# again for as long as nobody disarms it. systemd-run(1) would put variables into the command.
_ARM = f"""
name=$0 after=$1; shift
before=$(systemctl list-units --plain --no-legend "$name-*" | cut -d' ' -f1)
systemd-run --quiet --collect --unit="$name-$(cat /proc/sys/kernel/random/uuid)" --on-active="$after" \\
    --timer-property=AccuracySec=1s --property=Restart=on-failure --property=RestartSec={RETRY_S:g} \\
    --expand-environment=no -- "$@" || exit 1
[ -z "$before" ] || systemctl stop $before || ! systemctl is-active --quiet $before
"""
_DISARM = """
armed=$(systemctl list-units --plain --no-legend "$0-*" | cut -d' ' -f1)
[ -z "$armed" ] || systemctl stop $armed || ! systemctl is-active --quiet $armed
"""


class Deadman(Protocol):
    """Where a dead-man's switch is armed: out of the fault's reach."""

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew; a `ttl_s` of 0 disarms. Raises Problem, MachineError."""
        ...


@dataclass(frozen=True)
class Timers:
    """Switches on the nodes themselves, of the faults that a node can heal without its host; the control
    plane has none.

    A timer ends with a power cycle (transient units are in /run), and its clock stands still while the
    machine is frozen.
    """

    machine: Callable[[str], Shell]

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew; a `ttl_s` of 0 disarms. Raises Problem, MachineError.

        A timer that can't be reached to be disarmed is left to heal what is healed: it knows its own fault
        only.
        """
        made = fault_from_json(fault)
        if not made.undo or made.node not in made.harms:
            return
        name = f"nodeproof-heal-{made.id}"
        if ttl_s > 0:
            undo = undo_for_good(made, self.machine(made.node).state_folder)
            self._run(made.node, [_ARM, name, f"{ttl_s + LATE_S:g}s", *undo])
        else:
            with contextlib.suppress(MachineError):
                self._run(made.node, [_DISARM, name])

    def _run(self, node: str, script: Sequence[str]) -> None:
        done = self.machine(node).run(["sh", "-c", *script], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{node}: dead-man's timer: {done.stderr.strip()}")


@dataclass(frozen=True)
class Switches:
    """Several switches of a fault as one; the first is armed and disarmed first."""

    each: Sequence[Deadman]

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew all; a `ttl_s` of 0 disarms them. Raises Problem, MachineError."""
        for switch in self.each:
            switch.arm(fault, ttl_s)
