"""Cancelled shutdown: the machine prepares to power off, and systemd refuses the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_booted, has_systemd
from nodeproof.faults.shutdown import PREPARING
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_TARGET = "poweroff.target"
_LONGEST_DELAY_S = 150
"""Longer than logind waits for delay locks of others (InhibitDelayMaxSec= in the image)."""
_HEAL_TIMEOUT_S = _LONGEST_DELAY_S + 90.0
_MASKED_TIMEOUT_S = 30
"""Time for a busy machine to call logind and to mask the target (s)."""
# logind checks that the target is loaded before it accepts: with an earlier mask it would refuse. Our own
# lock stops it from continuing before the target is masked, even if no kubelet holds a lock.
_INJECT = f"""
case "$({" ".join(PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
exec systemd-inhibit --what=shutdown --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET}'
"""
# The same lock in a unit of its own: the command waits for the mask, not for the end of the lock.
_INJECT_AND_HOLD = f"""
case "$({" ".join(PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
systemd-run --quiet --collect --unit="$1" --expand-environment=no -- systemd-inhibit --what=shutdown \\
    --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET} && exec sleep "$0"' "$2" || exit 1
exec timeout {_MASKED_TIMEOUT_S} \\
    sh -c 'until systemctl is-enabled {_TARGET} | grep -q masked; do sleep 0.2; done'
"""
# Mask first: otherwise a machine whose last lock ends with the kubelet would power off. Start the kubelet
# only when logind no longer prepares: after a cancelled shutdown it may hold no lock, and while logind
# prepares it gets none (docs/findings.md). Unmask last: the mask shows that there is something to heal.
_HEAL = f"""
holds() {{ [ -n "$1" ] && systemctl --quiet is-active "$1"; }}
systemctl is-enabled {_TARGET} | grep -q masked || holds "$1" ||
    case "$({" ".join(PREPARING)})" in *false*) exit 0 ;; esac
systemctl mask --runtime {_TARGET} && systemctl stop kubelet.service || exit 1
[ -z "$1" ] || systemctl stop "$1" || ! systemctl is-active --quiet "$1" || exit 1
timeout {_LONGEST_DELAY_S} sh -c 'until {" ".join(PREPARING)} | grep -q false; do sleep 0.2; done' || exit 1
systemctl start kubelet.service && systemctl unmask --runtime {_TARGET}
"""
_REFUSED = ["journalctl", "--boot", "--unit=systemd-logind", "--grep=poweroff.target is masked", "--quiet"]


@dataclass(frozen=True)
class CalledOff:
    """Shutdown of `node` that logind has to cancel; healing cancels it if needed and restarts the kubelet.

    The fault asks logind to power off and masks poweroff.target while delay locks postpone the shutdown. A
    lock of the fault's own postpones it for `holds_s` more. Healing unmasks the target last.

    The kubelet ends its pods as in any shutdown. When the last lock is released, logind's StartUnit fails and
    logind cancels the shutdown: PrepareForShutdown(false) (src/login/logind-dbus.c,
    `execute_shutdown_or_sleep` and `manager_dispatch_delayed`). Only the end of the machine is missing.
    """

    name: ClassVar[str] = "called-off-shutdown"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    holds_s: int = 0

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that heals the fault on the machine.

        It stops the kubelet and the unit with our lock while the target is masked, waits for logind, starts
        the kubelet and unmasks the target.
        """
        return ["sh", "-c", _HEAL, "sh", *([self._lock_unit] if self.holds_s else [])]

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "holds_s": self.holds_s}

    def available(self, machine: Shell) -> str:
        """Require a machine that systemd booted and that is not shutting down."""
        if not has_systemd(machine):
            return f"{self.node} was not booted by systemd"
        if _is_masked(machine):
            return f"{_TARGET} of {self.node} is masked already"
        completed = machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S)
        return (
            "" if "false" in completed.stdout else f"{self.node} is shutting down: {completed.stdout.strip()}"
        )

    def inject(self, machine: Shell) -> None:
        """Request the shutdown once and mask the target; do nothing if it is masked already."""
        if _is_masked(machine):
            return
        if not self.holds_s:
            self._run(machine, ["sh", "-c", _INJECT, self.id])
            return
        self._run(machine, ["sh", "-c", _INJECT_AND_HOLD, self.id, self._lock_unit, str(self.holds_s)])

    def heal(self, machine: Shell) -> None:
        """Cancel a pending shutdown, restart the kubelet and unmask; skip a machine that is off."""
        if machine.is_powered():
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether logind prepares for a shutdown or was refused one."""
        if "true" in machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S).stdout:
            return True
        refusals = machine.run(_REFUSED, deadline_s=COMMAND_LIMIT_S)
        return bool(refusals.stdout.strip()) and _is_masked(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether no shutdown is pending, the target is unmasked and the kubelet serves."""
        if not has_booted(machine) or _is_masked(machine):
            return False
        return "false" in machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S).stdout

    @property
    def _lock_unit(self) -> str:
        return f"nodeproof-holds-{self.id}.service"

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=_HEAL_TIMEOUT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: called-off shutdown: {completed.stderr.strip()}")


def called_off_on(machine: Shell) -> list[CalledOff]:
    """Return a fault for a machine whose poweroff.target is masked. Raises MachineError."""
    return [CalledOff("00000000", machine.name)] if _is_masked(machine) else []


def _is_masked(machine: Shell) -> bool:
    completed = machine.run(["sh", "-c", f"systemctl is-enabled {_TARGET} || :"], deadline_s=COMMAND_LIMIT_S)
    return "masked" in completed.stdout
