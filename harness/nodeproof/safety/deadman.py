"""Dead-man's switches, which heal a fault if the harness dies; those of nodes are systemd timers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault
from nodeproof.faults.fence import fenced_heal_command
from nodeproof.machines.machine import STATE_FOLDER, MachineError, Runner, Shell, checked
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
_ARM_WITH_INPUT = f"""
input=$1; shift
(umask 077 && mkdir -p "${{input%/*}}" && cat >"$input.new" && mv "$input.new" "$input") || exit 1
{_ARM}
"""
# The program may repeat its input, and the journal of the host has other readers.
_WITH_INPUT = '"$@" <"$0" >/dev/null 2>&1 && rm -f "$0"'
_DISARM = """
armed=$(systemctl list-units --plain --no-legend "$0-*" | cut -d' ' -f1)
[ -z "$armed" ] || systemctl stop $armed || ! systemctl is-active --quiet $armed || exit 1
rm -f "$1"
"""


class Deadman(Protocol):
    """A dead-man's switch, armed out of the fault's reach."""

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch; a `ttl_s` of 0 disarms it. Raises Problem, MachineError."""
        ...


@dataclass(frozen=True)
class Timer:
    """The timer of systemd that heals a fault, on the machine `place`."""

    machine: Runner
    place: str
    fault_id: str

    def arm(self, ttl_s: float, command: Sequence[str]) -> None:
        """Let a command run after `ttl_s` seconds, and repeat it while it fails. Raises MachineError."""
        self._run([_ARM, self._name, f"{ttl_s + LATE_S:g}s", *command])

    def arm_with_input(self, ttl_s: float, command: Sequence[str], stdin: str) -> None:
        """Let a command with standard input run, as `arm` does. Raises MachineError.

        The input is in a file that only root can read, until the command has succeeded.
        """
        with_input = ["sh", "-c", _WITH_INPUT, self._input, *command]
        self._run([_ARM_WITH_INPUT, self._name, self._input, f"{ttl_s + LATE_S:g}s", *with_input], stdin)

    def disarm(self) -> None:
        """Stop the timer, and delete its input. Raises MachineError."""
        self._run([_DISARM, self._name, self._input])

    @property
    def _name(self) -> str:
        return f"nodeproof-heal-{self.fault_id}"

    @property
    def _input(self) -> str:
        return f"{STATE_FOLDER}/{self._name}"

    def _run(self, script: Sequence[str], stdin: str = "") -> None:
        completed = self.machine.run(["sh", "-c", *script], timeout_s=COMMAND_TIMEOUT_S, stdin=stdin)
        checked(completed, f"{self.place}: dead-man's timer")


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
        if ttl_s > 0:
            machine = self.machine(typed_fault.node)
            command = fenced_heal_command(typed_fault, machine.state_folder)
            Timer(machine, typed_fault.node, typed_fault.id).arm(ttl_s, command)
        else:
            with contextlib.suppress(MachineError, Problem):
                Timer(self.machine(typed_fault.node), typed_fault.node, typed_fault.id).disarm()


@dataclass(frozen=True)
class Switches:
    """Several switches of a fault as one; the first is armed and disarmed first."""

    switches: Sequence[Deadman]

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew all; a `ttl_s` of 0 disarms them. Raises Problem, MachineError."""
        for switch in self.switches:
            switch.arm(fault, ttl_s)
