"""A slow machine: one command of an injection begins long after its timeout."""

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

COMMAND_TIMEOUT_S, LATE_S, LANDED_TIMEOUT_S = 10.0, 3, 30.0
REFUSED = "75"
"""The exit status of a command that the fence refuses."""
_LATER = f"""
path=$0; cat >"$path"
(setsid sh -c 'sleep {LATE_S}; path=$0; "$@" <"$path"; echo "$?" >"$path.status"' "$path" "$@") \\
    >/dev/null 2>&1 &
"""


class Late:
    """The machine, except for the n-th command of an injection (from 1)."""

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
                later = ["sh", "-c", _LATER, self._path, *argv]
                self._machine.run(later, timeout_s=COMMAND_TIMEOUT_S, stdin=stdin)
                raise MachineError(self.message)
        return self._machine.run(argv, timeout_s=timeout_s, stdin=stdin)

    def status(self) -> str:
        """Return the exit status of the late command, None before its end. Raises MachineError."""
        read = ["sh", "-c", 'cat "$0.status" 2>/dev/null || :', self._path]
        return self._machine.run(read, timeout_s=COMMAND_TIMEOUT_S).stdout.strip()

    def forget(self) -> None:
        """Remove its files. Raises MachineError."""
        remove = ["rm", "-f", self._path, f"{self._path}.status"]
        self._machine.run(remove, timeout_s=COMMAND_TIMEOUT_S)


@dataclass(frozen=True)
class Fixed:
    """Return one machine for any name."""

    machine: Any

    def __call__(self, _name: str) -> Machine:
        machine: Machine = self.machine
        return machine


def assert_no_late_harm(injector: Injector, machine: Machine, fault: Fault) -> None:
    """Inject the fault once per command, with that command late: it must have no effect."""
    declared = Declared(fault.affected_nodes, [fault.node], "cluster")
    for number in itertools.count(1):
        again = replace(fault, id=uuid.uuid4().hex[:8])
        late = Late(machine, number)
        own = replace(injector, machine=Fixed(late), quarantined=set(), active={})
        try:
            with own.inject(again, declared, lambda *_arguments, **_data: None):
                return
        except MachineError as error:
            assert str(error) == late.message
        assert own.quarantined == set()
        assert eventually(late.status, LANDED_TIMEOUT_S) == REFUSED
        assert eventually(lambda again=again: again.is_healed(machine), HEAL_TIMEOUT_S)  # type: ignore[misc]
        late.forget()
