"""The fence: no command of an injection has an effect once the healing of its fault has begun.

A command may continue after its timeout, or may start late on a busy machine. Every command of an injection
therefore runs under a lock on its machine, and only while the fault is not marked as over there. Healing
writes that mark and waits for the lock before it undoes anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault
from nodeproof.machines.machine import CommandResult, MachineError, PowerAction, Shell, checked
from nodeproof.waiting import retry_on

_QUICK_TIMEOUT_S = 3.0
"""Timeout (s) for an answer of a machine that may be frozen; then it is healed without one."""
_UP_TIMEOUT_S = 120.0
"""Timeout (s) for an answer of a healed machine, which may be booting."""
_LOCKED_TIMEOUT_S = 5
"""How long (s) a command of the injection may continue after healing began, before it is killed."""
_OPEN = 'folder=$0 id=$1; shift; [ -d "$folder" ] || mkdir -p "$folder" || exit 1; exec 9>>"$folder/$id.lock"'
# Background processes of the command do not hold the lock: its descriptor is closed for all of them. The
# command has a session of its own, so that all of its processes can be killed.
_UNLESS_OVER = f"""
{_OPEN} && flock 9 || exit 1
if [ -e "$folder/$id.over" ]; then echo "fault $id is over" >&2; exit 75; fi
exec 8<&0
setsid "$@" <&8 8<&- 9>&- & pid=$!
echo "$pid" >"$folder/$id.pid"
wait "$pid"
"""
_OWN_SESSION = ("setsid", "--fork", "--wait")
"""Prefix that starts a session: a caller that is killed at its timeout does not release the lock."""
_CLOSE = f"""
{_OPEN} && : >"$folder/$id.over" || exit 1
if ! flock -w {_LOCKED_TIMEOUT_S} 9; then
    kill -KILL "-$(cat "$folder/$id.pid")"
    flock -w {_LOCKED_TIMEOUT_S} 9 || exit 1
fi
rm -f "$folder/$id.lock" "$folder/$id.pid"
"""
_CLOSE_TIMEOUT_S = COMMAND_TIMEOUT_S + 2 * _LOCKED_TIMEOUT_S
# A failed command is retried by its caller.
_CLOSE_AND_UNDO = 'sh -c "$2" "$0" "$1" || open=yes; shift 2; "$@" && [ -z "${open-}" ]'


class FencedShell:
    """A machine as an injection sees it: commands run only while the fault is not over there."""

    def __init__(self, machine: Shell, fault_id: str) -> None:
        self.name = machine.name
        self.data_address = machine.data_address
        self.state_folder = machine.state_folder
        self._machine = machine
        self._fault_id = fault_id
        self._running: list[str] = []

    @property
    def control_plane_addresses(self) -> Sequence[str]:
        return self._machine.control_plane_addresses

    @property
    def has_ended(self) -> bool:
        """Whether every command that was started has ended, so that none can act later."""
        return not self._running

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command unless the fault is over. Raises MachineError as the machine does."""
        self._running.append(self.name)
        fenced = [*_OWN_SESSION, "sh", "-c", _UNLESS_OVER, self.state_folder, self._fault_id, *argv]
        completed = self._machine.run(fenced, timeout_s=timeout_s, stdin=stdin)
        self._running.pop()
        return completed

    def is_powered(self) -> bool:
        return self._machine.is_powered()

    def power(self, action: PowerAction) -> None:
        self._machine.power(action)

    def beside(self, name: str) -> Shell:
        """Return another machine of the lab, behind the same fence. Raises MachineError."""
        neighbour = FencedShell(self._machine.beside(name), self._fault_id)
        neighbour._running = self._running
        return neighbour


class HealingShell(FencedShell):
    """A machine as a healing sees it: its commands run, and those of the injection no longer do."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        return self._machine.run(argv, timeout_s=timeout_s, stdin=stdin)

    def beside(self, name: str) -> Shell:
        """Return another machine of the lab, with its fence closed if it answers. Raises MachineError."""
        neighbour = HealingShell(self._machine.beside(name), self._fault_id)
        neighbour.try_close(_QUICK_TIMEOUT_S)
        return neighbour

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Block all commands of the injection from now on. Raises MachineError."""
        argv = ["sh", "-c", _CLOSE, self.state_folder, self._fault_id]
        subject = f"{self.name}: fence of fault {self._fault_id}"
        checked(self._machine.run(argv, timeout_s=timeout_s), subject)

    def try_close(self, timeout_s: float) -> bool:
        """Close the fence and return whether the machine answered in time.

        A component that is off answers, too, because its commands do not run in its own process.
        """
        with contextlib.suppress(MachineError):
            self.close(timeout_s)
            return True
        return False


def heal_fenced(fault: Fault, machine: Shell) -> None:
    """Heal a fault whose injection may still be under way: none of its commands acts once this returns.

    A machine that does not answer is healed first, and once more behind its closed fence. If a machine stays
    off, the injection's commands ended with it.

    Raises:
        MachineError: Healing failed, or the fence could not be closed.
    """
    closing = HealingShell(machine, fault.id)
    is_closed = closing.try_close(_QUICK_TIMEOUT_S)
    fault.heal(closing)
    if is_closed or not closing.is_powered():
        return
    retry_on(closing.close, MachineError, timeout_s=_UP_TIMEOUT_S)
    fault.heal(closing)


def fenced_heal_command(fault: Fault, state_folder: str) -> Sequence[str]:
    """Return the command that closes the fence on the machine itself and heals the fault there."""
    return ["sh", "-c", _CLOSE_AND_UNDO, state_folder, fault.id, _CLOSE, *fault.self_heal_command]
