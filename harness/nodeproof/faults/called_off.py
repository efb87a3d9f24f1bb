"""A shutdown that is called off: the machine prepares to power off, and systemd's last step is refused."""

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
"""More than the time that logind gives to locks of others (InhibitDelayMaxSec= in the image)."""
_HEAL_LIMIT_S = _LONGEST_DELAY_S + 90.0
_MASKED_LIMIT_S = 30
"""How long a busy machine may take to ask logind and to mask the target."""
# logind looks whether the target is loaded before it accepts: masked any earlier, it would refuse. Our own
# lock keeps it from going on before the target is masked, also where no kubelet holds one.
_INJECT = f"""
case "$({" ".join(PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
exec systemd-inhibit --what=shutdown --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET}'
"""
# The same lock, kept by a unit of its own: nobody waits for its end, but for the target to be masked.
_INJECT_AND_HOLD = f"""
case "$({" ".join(PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
systemd-run --quiet --collect --unit="$1" --expand-environment=no -- systemd-inhibit --what=shutdown \\
    --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET} && exec sleep "$0"' "$2" || exit 1
exec timeout {_MASKED_LIMIT_S} \\
    sh -c 'until systemctl is-enabled {_TARGET} | grep -q masked; do sleep 0.2; done'
"""
# Masked first: a machine whose last lock goes with the kubelet would power off. The kubelet starts when
# logind has forgotten that it was asked: after a shutdown that was called off it may hold no lock, and while
# logind prepares it gets none (docs/findings.md). Unmasked last: while masked, there is something to heal.
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
    """Asks logind of `node` to power off, and masks poweroff.target while delay locks hold it up, one of
    ours for `holds_s` more; healing takes the request back, restarts the kubelet and unmasks.

    The kubelet ends its pods as ever. When the last lock is released logind's StartUnit fails, and it takes
    the shutdown back: PrepareForShutdown(false) (src/login/logind-dbus.c, `execute_shutdown_or_sleep` and
    `manager_dispatch_delayed`). What it does not show is the end of the machine.
    """

    name: ClassVar[str] = "called-off-shutdown"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    holds_s: int = 0

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Stop the kubelet and what holds our lock while the target is masked, wait for logind, start the
        kubelet, unmask.
        """
        return ["sh", "-c", _HEAL, "sh", *([self._holder] if self.holds_s else [])]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "holds_s": self.holds_s}

    def available(self, machine: Shell) -> str:
        """systemd must have booted the machine, and nobody may be shutting it down."""
        if not has_systemd(machine):
            return f"{self.node} was not booted by systemd"
        if _is_masked(machine):
            return f"{_TARGET} of {self.node} is masked already"
        done = machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S)
        return "" if "false" in done.stdout else f"{self.node} is shutting down: {done.stdout.strip()}"

    def inject(self, machine: Shell) -> None:
        """Ask once, and mask; where that was done, it stays so."""
        if _is_masked(machine):
            return
        if not self.holds_s:
            self._run(machine, ["sh", "-c", _INJECT, self.id])
            return
        self._run(machine, ["sh", "-c", _INJECT_AND_HOLD, self.id, self._holder, str(self.holds_s)])

    def heal(self, machine: Shell) -> None:
        """Take it back where it was not, restart the kubelet, unmask; nothing on a machine that is off."""
        if machine.is_powered():
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """logind says that it prepares for a shutdown, or that it was refused one."""
        if "true" in machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S).stdout:
            return True
        refused = machine.run(_REFUSED, deadline_s=COMMAND_LIMIT_S)
        return bool(refused.stdout.strip()) and _is_masked(machine)

    def is_healed(self, machine: Machine) -> bool:
        """logind prepares for none, the target can be started again, and the kubelet serves."""
        if not has_booted(machine) or _is_masked(machine):
            return False
        return "false" in machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S).stdout

    @property
    def _holder(self) -> str:
        return f"nodeproof-holds-{self.id}.service"

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=_HEAL_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: called-off shutdown: {done.stderr.strip()}")


def called_off_on(machine: Shell) -> list[CalledOff]:
    """A shutdown that is called off on a machine whose poweroff.target is masked. Raises MachineError."""
    return [CalledOff("00000000", machine.name)] if _is_masked(machine) else []


def _is_masked(machine: Shell) -> bool:
    asked = machine.run(["sh", "-c", f"systemctl is-enabled {_TARGET} || :"], deadline_s=COMMAND_LIMIT_S)
    return "masked" in asked.stdout
