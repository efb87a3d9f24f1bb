"""Shutdown: the machine's own service manager is told to power off, and takes its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_booted, has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
Way = Literal["orderly", "forced"]
_HEAL_LIMIT_S = 30.0
"""How long healing waits for an answer: a busy machine is not one on its way down."""
_MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
PREPARING = ["busctl", "get-property", *_MANAGER, "PreparingForShutdown"]
# Nobody answers any more once it is carried out: it begins when we have been answered.
_FORCED = "(sleep 1; exec systemctl poweroff --force --force) >/dev/null 2>&1 </dev/null &"
_POWEROFF: Mapping[Way, Sequence[str]] = {
    "orderly": ["systemctl", "poweroff"],
    "forced": ["sh", "-c", _FORCED],
}


@dataclass(frozen=True)
class Shutdown:
    """Runs `systemctl poweroff` on `node`; healing boots it, at once where it is still on its way down.

    `systemctl poweroff` calls logind (systemd 257, `verb_start_special` -> `logind_reboot` in
    src/systemctl). logind emits PrepareForShutdown on the system bus and asks systemd for poweroff.target
    only once the last delay lock is released, or InhibitDelayMaxSec is over (src/login/logind-dbus.c,
    `bus_manager_shutdown_or_sleep_now_or_later`). That signal is the kubelet's graceful node shutdown. Root
    passes by locks of the mode `block` only.

    What is `forced` leaves out logind, and with `--force` twice systemd as well: systemctl writes to disk
    what is not there yet, and asks the kernel (src/systemctl/systemctl-start-special.c, `halt_now`).
    """

    name: ClassVar[str] = "shutdown"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = True
    id: str
    node: str
    way: Way = "orderly"

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Only the machine's host can."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "way": self.way}

    def available(self, machine: Shell) -> str:
        """systemd must have booted the machine (sd_booted(3)), and its logind must answer."""
        if not has_systemd(machine):
            return f"{self.node} was not booted by systemd"
        done = machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S)
        return "" if done.status == 0 else f"no logind on {self.node}: {done.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Ask once; a machine that is on its way already, or off, is left to it."""
        if not machine.is_powered() or _is_going_down(machine):
            return
        done = machine.run(_POWEROFF[self.way], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: {self.way} poweroff: {done.stderr.strip()}")

    def heal(self, machine: Shell) -> None:
        """Boot; what is still on its way down, or can't be asked any more, loses its power first."""
        if _cannot_stay(machine):
            machine.power("off")
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """The host sees it off; or, while it is on its way: logind or systemd says so, or its kernel still
        answers and its sshd is gone.
        """
        return not machine.is_powered() or machine.refuses_on_control() or _is_going_down(machine)

    def is_healed(self, machine: Machine) -> bool:
        """It runs and stays, lets us in, both ways of the data network are open, and its kubelet serves."""
        return has_booted(machine) and not _is_going_down(machine)


def _is_going_down(machine: Shell, limit_s: float = COMMAND_LIMIT_S) -> bool:
    """Whether the machine's own service managers say so, or logind has ended already.

    logind says so from the request on, and ends soon after the last lock is released; systemd says so from
    then on, almost to the end.
    """
    either = f"{' '.join(PREPARING)}; systemctl is-system-running"
    said = machine.run(["sh", "-c", either], deadline_s=limit_s).stdout.splitlines()
    return "b false" not in said or "stopping" in said


def _cannot_stay(machine: Shell) -> bool:
    try:
        return not machine.is_powered() or _is_going_down(machine, _HEAL_LIMIT_S)
    except MachineError:
        return True
