"""The fence: no command of an injection does anything once the healing of its fault has begun.

A command whose deadline passed may go on, or may begin later on a busy machine. Every command of an injection
therefore runs under a lock on its machine, and only while the fault is not over there. Healing writes that it
is over, and waits for the lock, before it undoes anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from nodeproof.faults.fault import COMMAND_LIMIT_S, Fault
from nodeproof.machines.machine import CommandResult, MachineError, PowerAction, Shell
from nodeproof.waiting import insist

_QUICK_LIMIT_S = 3.0
"""How long a machine that may stand still has for an answer before it is healed without one."""
_UP_LIMIT_S = 120.0
"""How long a machine has for an answer once it was healed: as long as a boot takes."""
_LOCKED_LIMIT_S = 5
"""How long (s) a command of the injection may go on after healing began, before it is killed."""
_OPEN = 'folder=$0 id=$1; shift; [ -d "$folder" ] || mkdir -p "$folder" || exit 1; exec 9>>"$folder/$id.lock"'
# Whoever the command leaves behind does not hold the lock: its descriptor is closed for all of them. The
# command has a session of its own, so that all of it can be killed.
_UNLESS_OVER = f"""
{_OPEN} && flock 9 || exit 1
if [ -e "$folder/$id.over" ]; then echo "fault $id is over" >&2; exit 75; fi
exec 8<&0
setsid "$@" <&8 8<&- 9>&- & pid=$!
echo "$pid" >"$folder/$id.pid"
wait "$pid"
"""
_CLOSE = f"""
{_OPEN} && : >"$folder/$id.over" || exit 1
if ! flock -w {_LOCKED_LIMIT_S} 9; then
    kill -KILL "-$(cat "$folder/$id.pid")"
    flock -w {_LOCKED_LIMIT_S} 9 || exit 1
fi
rm -f "$folder/$id.lock" "$folder/$id.pid"
"""
_CLOSE_LIMIT_S = COMMAND_LIMIT_S + 2 * _LOCKED_LIMIT_S
# Whoever runs this tries again where it fails.
_CLOSE_AND_UNDO = 'sh -c "$2" "$0" "$1" || open=yes; shift 2; "$@" && [ -z "${open-}" ]'


class Fenced:
    """A machine as an injection sees it: its commands run only while the fault is not over there."""

    def __init__(self, machine: Shell, fault_id: str) -> None:
        self.name = machine.name
        self.data_address = machine.data_address
        self.control_plane_address = machine.control_plane_address
        self.state_folder = machine.state_folder
        self._machine = machine
        self._fault_id = fault_id
        self._running: list[str] = []

    @property
    def has_ended(self) -> bool:
        """Whether every command that was begun came to its end: none of them can act any more."""
        return not self._running

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command unless the fault is over. Raises MachineError as the machine does."""
        self._running.append(self.name)
        fenced = ["sh", "-c", _UNLESS_OVER, self.state_folder, self._fault_id, *argv]
        done = self._machine.run(fenced, deadline_s=deadline_s, stdin=stdin)
        self._running.pop()
        return done

    def is_powered(self) -> bool:
        """Whether the machine's first process runs."""
        return self._machine.is_powered()

    def power(self, action: PowerAction) -> None:
        """Let the machine's host do something to it, one after another. Raises MachineError."""
        self._machine.power(action)

    def beside(self, name: str) -> Shell:
        """Give another machine of its lab, behind the same fence. Raises MachineError."""
        other = Fenced(self._machine.beside(name), self._fault_id)
        other._running = self._running
        return other


class Closing(Fenced):
    """A machine as a healing sees it: its commands run, and no command of the injection does any more."""

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command. Raises MachineError."""
        return self._machine.run(argv, deadline_s=deadline_s, stdin=stdin)

    def beside(self, name: str) -> Shell:
        """Give another machine of its lab, its fence closed if it answers. Raises MachineError."""
        other = Closing(self._machine.beside(name), self._fault_id)
        other.has_closed(_QUICK_LIMIT_S)
        return other

    def close(self, deadline_s: float = _CLOSE_LIMIT_S) -> None:
        """Let no command of the injection act from now on. Raises MachineError."""
        argv = ["sh", "-c", _CLOSE, self.state_folder, self._fault_id]
        done = self._machine.run(argv, deadline_s=deadline_s)
        if done.status != 0:
            raise MachineError(f"{self.name}: fence of fault {self._fault_id}: {done.stderr.strip()}")

    def has_closed(self, deadline_s: float) -> bool:
        """Close the fence if the machine answers in time; say whether it does.

        Commands of a component run beside it, whether it is on or off.
        """
        with contextlib.suppress(MachineError):
            self.close(deadline_s)
            return True
        return False


def heal_for_good(fault: Fault, machine: Shell) -> None:
    """Heal a fault whose injection may still be under way: nothing of it acts once this returns.

    A machine that does not answer is healed first, and once more behind its closed fence. One that stays off
    took the injection's commands with it. Raises MachineError.
    """
    closing = Closing(machine, fault.id)
    is_closed = closing.has_closed(_QUICK_LIMIT_S)
    fault.heal(closing)
    if is_closed or not closing.is_powered():
        return
    insist(closing.close, MachineError, limit_s=_UP_LIMIT_S)
    fault.heal(closing)


def undo_for_good(fault: Fault, state_folder: str) -> Sequence[str]:
    """Give the command that closes the fence on the machine itself, and heals the fault there."""
    return ["sh", "-c", _CLOSE_AND_UNDO, state_folder, fault.id, _CLOSE, *fault.undo]
