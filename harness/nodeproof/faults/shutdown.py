"""Shutdown: the machine's own service manager powers it off in an orderly way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_booted, has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
Way = Literal["orderly", "forced"]
_HEAL_TIMEOUT_S = 30.0
"""How long healing waits for an answer: a busy machine is not necessarily shutting down."""
_MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
PREPARING = ["busctl", "get-property", *_MANAGER, "PreparingForShutdown"]
# The machine stops answering once this is carried out, so it starts after we have an answer.
_FORCED = "(sleep 1; exec systemctl poweroff --force --force) >/dev/null 2>&1 </dev/null &"
_POWEROFF: Mapping[Way, Sequence[str]] = {
    "orderly": ["systemctl", "poweroff"],
    "forced": ["sh", "-c", _FORCED],
}


@dataclass(frozen=True)
class Shutdown:
    """Shutdown of `node` by `systemctl poweroff`; healing boots it, at once if it is still shutting down.

    `systemctl poweroff` calls logind (systemd 257, `verb_start_special` -> `logind_reboot` in src/systemctl).
    logind emits PrepareForShutdown on the system bus and asks systemd for poweroff.target only once the last
    delay lock is released, or InhibitDelayMaxSec is over (src/login/logind-dbus.c,
    `bus_manager_shutdown_or_sleep_now_or_later`). That signal is the kubelet's graceful node shutdown. Root
    bypasses only locks of the mode `block`.

    A `forced` shutdown bypasses logind, and with `--force` twice systemd as well: systemctl syncs the disks
    and asks the kernel (src/systemctl/systemctl-start-special.c, `halt_now`).
    """

    name: ClassVar[str] = "shutdown"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = True
    id: str
    node: str
    way: Way = "orderly"

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: only the machine's host can heal it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "way": self.way}

    def available(self, machine: Shell) -> str:
        """Require a machine that systemd booted (sd_booted(3)) and whose logind answers."""
        if not has_systemd(machine):
            return f"{self.node} was not booted by systemd"
        completed = machine.run(PREPARING, deadline_s=COMMAND_LIMIT_S)
        return "" if completed.status == 0 else f"no logind on {self.node}: {completed.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Request the shutdown once; leave a machine alone that is shutting down or off."""
        if not machine.is_powered() or _is_going_down(machine):
            return
        completed = machine.run(_POWEROFF[self.way], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: {self.way} poweroff: {completed.stderr.strip()}")

    def heal(self, machine: Shell) -> None:
        """Boot the machine; first cut the power if it is still shutting down or does not answer."""
        if _cannot_stay(machine):
            machine.power("off")
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the host reports it as off, or it is shutting down.

        It is shutting down if logind or systemd reports that, or if its kernel still answers and its sshd is
        gone.
        """
        return not machine.is_powered() or machine.refuses_on_control() or _is_going_down(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether it runs, is not shutting down, is reachable both ways and its kubelet serves."""
        return has_booted(machine) and not _is_going_down(machine)


def _is_going_down(machine: Shell, timeout_s: float = COMMAND_LIMIT_S) -> bool:
    """Return whether the machine's service managers report a shutdown, or logind has ended already.

    logind reports it from the request on, and ends soon after the last lock is released; systemd reports it
    from then on, almost to the end.
    """
    either = f"{' '.join(PREPARING)}; systemctl is-system-running"
    states = machine.run(["sh", "-c", either], deadline_s=timeout_s).stdout.splitlines()
    return "b false" not in states or "stopping" in states


def _cannot_stay(machine: Shell) -> bool:
    try:
        return not machine.is_powered() or _is_going_down(machine, _HEAL_TIMEOUT_S)
    except MachineError:
        return True
