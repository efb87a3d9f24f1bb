"""Dead-man's switches, which heal a fault if the harness dies; those of nodes are systemd timers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault
from nodeproof.faults.fence import fenced_heal_command
from nodeproof.machines.machine import MachineError, Shell, checked
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

LATE_S = 3.0
"""Delay (s) of a timer after the lab's own switch, which fires first because the history records it."""
RETRY_S = 3.0
"""Delay after a failed healing before the machine retries (s); systemd allows five starts in 10 s."""
# The new timer starts before the old one is stopped; a healing that the old one has begun is stopped, too. A
# failed healing is retried until the timer is disarmed. systemd-run(1) would expand variables in the command.
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
    """A dead-man's switch, armed out of the fault's reach."""

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch; a `ttl_s` of 0 disarms it. Raises Problem, MachineError."""
        ...


@dataclass(frozen=True)
class Timers:
    """Switches on the nodes themselves, for faults that a node can heal without its host.

    The control plane has none. A timer ends with a power cycle (transient units are in /run), and its clock
    stops while the machine is frozen.
    """

    machine: Callable[[str], Shell]

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch; a `ttl_s` of 0 disarms it. Raises Problem, MachineError.

        A timer that cannot be disarmed, because its machine does not answer, has no other effect than to heal
        its own fault again. Nor can that of a node that is gone.
        """
        typed_fault = Fault.from_json(fault)
        if not typed_fault.self_heal_command or typed_fault.node not in typed_fault.affected_nodes:
            return
        name = f"nodeproof-heal-{typed_fault.id}"
        if ttl_s > 0:
            self_heal_command = fenced_heal_command(typed_fault, self.machine(typed_fault.node).state_folder)
            self._run(typed_fault.node, [_ARM, name, f"{ttl_s + LATE_S:g}s", *self_heal_command])
        else:
            with contextlib.suppress(MachineError, Problem):
                self._run(typed_fault.node, [_DISARM, name])

    def _run(self, node: str, script: Sequence[str]) -> None:
        completed = self.machine(node).run(["sh", "-c", *script], timeout_s=COMMAND_TIMEOUT_S)
        checked(completed, f"{node}: dead-man's timer")


@dataclass(frozen=True)
class Switches:
    """Several switches of a fault as one; the first is armed and disarmed first."""

    switches: Sequence[Deadman]

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew all; a `ttl_s` of 0 disarms them. Raises Problem, MachineError."""
        for switch in self.switches:
            switch.arm(fault, ttl_s)
