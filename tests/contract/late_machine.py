"""A machine on which one command of an injection begins long after its timeout."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodeproof.faults import Fault
from nodeproof.faults.fence import _UNLESS_OVER
from nodeproof.machines.machine import CommandResult, Machine, MachineError
from nodeproof.safety.guard import Declared
from nodeproof.safety.injector import HEAL_TIMEOUT_S, Injector
from tests.waiting import eventually

COMMAND_TIMEOUT_S, LATE_S, LATE_COMMAND_TIMEOUT_S = 10.0, 3, 30.0
REFUSED = "75"
"""The exit status of a command that the fence refuses."""
_RUN_LATER = f"""
path=$0; cat >"$path"
(setsid sh -c 'sleep {LATE_S}; path=$0; "$@" <"$path"; echo "$?" >"$path.status"' "$path" "$@") \\
    >/dev/null 2>&1 &
"""


class MachineWithLateCommand:
    """A machine that runs the n-th command of an injection (from 1) too late."""

    def __init__(self, machine: Machine, number: int) -> None:
        self._machine = machine
        self._left = number
        self.message = f"{machine.name}: no end of command {number}"
        self._path = f"{machine.state_folder}-late-{uuid.uuid4().hex}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command, or start it later and raise MachineError."""
        if _UNLESS_OVER in argv:
            self._left -= 1
            if self._left == 0:
                later = ["sh", "-c", _RUN_LATER, self._path, *argv]
                self._machine.run(later, timeout_s=COMMAND_TIMEOUT_S, stdin=stdin)
                raise MachineError(self.message)
        return self._machine.run(argv, timeout_s=timeout_s, stdin=stdin)

    def status(self) -> str:
        """Return the exit status of the late command, None before its end. Raises MachineError."""
        read = ["sh", "-c", 'cat "$0.status" 2>/dev/null || :', self._path]
        return self._machine.run(read, timeout_s=COMMAND_TIMEOUT_S).stdout.strip()

    def remove_files(self) -> None:
        """Remove its files. Raises MachineError."""
        remove = ["rm", "-f", self._path, f"{self._path}.status"]
        self._machine.run(remove, timeout_s=COMMAND_TIMEOUT_S)


@dataclass(frozen=True)
class SameMachine:
    """Return the same machine for every name."""

    machine: Any

    def __call__(self, _name: str) -> Machine:
        machine: Machine = self.machine
        return machine


def assert_late_commands_have_no_effect(injector: Injector, machine: Machine, fault: Fault) -> None:
    """Inject the fault once per command, each time with that command late; check that it has no effect."""
    declared = Declared(fault.affected_nodes, [fault.node], "cluster")
    for number in itertools.count(1):
        other_fault = replace(fault, id=uuid.uuid4().hex[:8])
        late = MachineWithLateCommand(machine, number)
        injector_of_late_machine = replace(injector, machine=SameMachine(late), quarantined=set(), active={})
        try:
            with injector_of_late_machine.inject(other_fault, declared, lambda *_arguments, **_data: None):
                return
        except MachineError as error:
            assert str(error) == late.message
        assert injector_of_late_machine.quarantined == set()
        assert eventually(late.status, LATE_COMMAND_TIMEOUT_S) == REFUSED
        assert eventually(lambda other_fault=other_fault: other_fault.is_healed(machine), HEAL_TIMEOUT_S)  # type: ignore[misc]
        late.remove_files()
