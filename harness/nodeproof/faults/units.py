"""Services of a node, and shutdowns by its service manager: complete, or cancelled before the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nodeproof.faults.fault import (
    COMMAND_TIMEOUT_S,
    Fault,
    answer_of,
    has_booted,
    ids_in,
    output_of,
    succeeds,
)
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.cluster import SERVICE_ADDRESS

Way = Literal["orderly", "forced"]
_BOOT_TIMEOUT_S = 30.0
"""How long healing waits for an answer: a busy machine is not necessarily shutting down."""
_MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_PREPARING = ("busctl", "get-property", *_MANAGER, "PreparingForShutdown")
# The machine stops answering once this is carried out, so it starts after we have an answer.
_FORCED = "(sleep 1; exec systemctl poweroff --force --force) >/dev/null 2>&1 </dev/null &"
_POWEROFF: Mapping[Way, Sequence[str]] = {
    "orderly": ["systemctl", "poweroff"],
    "forced": ["sh", "-c", _FORCED],
}
_TARGET = "poweroff.target"
_LONGEST_DELAY_S = 150
"""Longer than logind waits for delay locks of others (InhibitDelayMaxSec= in the image)."""
_MASKED_TIMEOUT_S = 30
"""Time for a busy machine to call logind and to mask the target (s)."""
# logind checks that the target is loaded before it accepts: with an earlier mask it would refuse. Our own
# lock stops it from continuing before the target is masked, even if no kubelet holds a lock.
_INJECT = f"""
case "$({" ".join(_PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
exec systemd-inhibit --what=shutdown --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET}'
"""
# The same lock in a unit of its own: the command waits for the mask, not for the end of the lock.
_INJECT_AND_HOLD = f"""
case "$({" ".join(_PREPARING)})" in *true*) exec systemctl mask --runtime {_TARGET} ;; esac
systemd-run --quiet --collect --unit="$1" --expand-environment=no -- systemd-inhibit --what=shutdown \\
    --mode=delay --who=nodeproof --why="$0" \\
    sh -c 'systemctl poweroff && systemctl mask --runtime {_TARGET} && exec sleep "$0"' "$2" || exit 1
exec timeout {_MASKED_TIMEOUT_S} \\
    sh -c 'until systemctl is-enabled {_TARGET} | grep -q masked; do sleep 0.2; done'
"""
# Mask first: otherwise a machine whose last lock ends with the kubelet would power off. Start the kubelet
# only when logind no longer prepares: after a cancelled shutdown it may hold no lock, and while logind
# prepares it gets none (docs/findings/kubelet-start-during-shutdown.md). Unmask last: the mask shows that
# there is something to heal.
_HEAL = f"""
holds() {{ [ -n "$1" ] && systemctl --quiet is-active "$1"; }}
systemctl is-enabled {_TARGET} | grep -q masked || holds "$1" ||
    case "$({" ".join(_PREPARING)})" in *false*) exit 0 ;; esac
systemctl mask --runtime {_TARGET} && systemctl stop kubelet.service || exit 1
[ -z "$1" ] || systemctl stop "$1" || ! systemctl is-active --quiet "$1" || exit 1
timeout {_LONGEST_DELAY_S} sh -c 'until {" ".join(_PREPARING)} | grep -q false; do sleep 0.2; done' || exit 1
systemctl start kubelet.service && systemctl unmask --runtime {_TARGET}
"""
_REFUSED = ("journalctl", "--boot", "--unit=systemd-logind", "--grep=poweroff.target is masked", "--quiet")


# `systemctl poweroff` calls logind (systemd 257, `verb_start_special` -> `logind_reboot` in src/systemctl).
# logind emits PrepareForShutdown on the system bus and asks systemd for poweroff.target only once the last
# delay lock is released, or InhibitDelayMaxSec is over (src/login/logind-dbus.c,
# `bus_manager_shutdown_or_sleep_now_or_later`). That signal is the kubelet's graceful node shutdown. Root
# bypasses only locks of the mode `block`. With `--force` twice systemctl syncs the disks and asks the kernel
# (src/systemctl/systemctl-start-special.c, `halt_now`).
@dataclass(frozen=True)
class Shutdown(Fault):
    """Shutdown of `node` by `systemctl poweroff`; healing boots it, at once if it is still shutting down.

    A `forced` shutdown bypasses logind and systemd. Needs the feature `systemd`.
    """

    name = "shutdown"
    ends_components = True
    way: Way = "orderly"

    def available(self, machine: Shell) -> str:
        """Require a machine whose logind answers."""
        completed = machine.run(_PREPARING, timeout_s=COMMAND_TIMEOUT_S)
        return "" if completed.status == 0 else f"no logind on {self.node}: {completed.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Request the shutdown once; leave a machine alone that is shutting down or off."""
        if machine.is_powered() and not _is_going_down(machine):
            self.run(machine, _POWEROFF[self.way])

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
        return has_booted(machine) and not _is_going_down(machine)


# The kubelet ends its pods as in any shutdown. When the last lock is released, logind's StartUnit fails and
# logind cancels the shutdown: PrepareForShutdown(false) (src/login/logind-dbus.c,
# `execute_shutdown_or_sleep` and `manager_dispatch_delayed`). Only the end of the machine is missing.
@dataclass(frozen=True)
class CancelledShutdown(Fault):
    """Shutdown of `node` that logind has to cancel; healing cancels it if needed and restarts the kubelet.

    The last step is refused: pods end, the machine stays. A lock of the fault's own postpones the shutdown
    for `delay_s`, whatever happens to the kubelet's lock. Needs the feature `systemd`.
    """

    name = "called-off-shutdown"
    ends_with_power = True
    timeout_s = _LONGEST_DELAY_S + 90.0
    delay_s: int = field(default=0, metadata={"key": "holds_s"})

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[CancelledShutdown]:
        """Return a fault for a machine whose poweroff.target is masked. Raises MachineError."""
        return [cls(machine.name, id="00000000")] if _is_masked(machine) else []

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that heals the fault on the machine.

        It stops the kubelet and the unit with our lock while the target is masked, waits for logind, starts
        the kubelet and unmasks the target.
        """
        return ["sh", "-c", _HEAL, "sh", *([self._lock_unit] if self.delay_s else [])]

    def available(self, machine: Shell) -> str:
        """Require a machine whose logind answers and does not prepare for a shutdown."""
        state = machine.run(_PREPARING, timeout_s=COMMAND_TIMEOUT_S)
        if state.status != 0:
            return f"no logind on {self.node}: {state.stderr.strip()}"
        if _is_masked(machine):
            return f"{_TARGET} of {self.node} is masked already"
        return "" if "false" in state.stdout else f"{self.node} is shutting down: {state.stdout.strip()}"

    def inject(self, machine: Shell) -> None:
        """Request the shutdown once and mask the target; do nothing if it is masked already."""
        if _is_masked(machine):
            return
        if self.delay_s:
            self.run(machine, ["sh", "-c", _INJECT_AND_HOLD, self.id, self._lock_unit, str(self.delay_s)])
        else:
            self.run(machine, ["sh", "-c", _INJECT, self.id])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether logind prepares for a shutdown or was refused one."""
        if "true" in output_of(machine, *_PREPARING):
            return True
        return bool(output_of(machine, *_REFUSED).strip()) and _is_masked(machine)

    def is_healed(self, machine: Machine) -> bool:
        if not has_booted(machine) or _is_masked(machine):
            return False
        return "false" in output_of(machine, *_PREPARING)

    @property
    def _lock_unit(self) -> str:
        return f"nodeproof-holds-{self.id}.service"


def _is_masked(machine: Shell) -> bool:
    return "masked" in output_of(machine, "sh", "-c", f"systemctl is-enabled {_TARGET} || :")


def _is_going_down(machine: Shell, timeout_s: float = COMMAND_TIMEOUT_S) -> bool:
    """Return whether the machine's service managers report a shutdown, or logind has ended already.

    logind reports it from the request on, and ends soon after the last lock is released; systemd reports it
    from then on, almost to the end.
    """
    either = f"{' '.join(_PREPARING)}; systemctl is-system-running"
    states = machine.run(["sh", "-c", either], timeout_s=timeout_s).stdout.splitlines()
    return "b false" not in states or "stopping" in states


def _cannot_stay(machine: Shell) -> bool:
    try:
        return not machine.is_powered() or _is_going_down(machine, _BOOT_TIMEOUT_S)
    except MachineError:
        return True


KUBELET = "kubelet.service"
_STOP_TIMEOUT_S = 120.0
"""systemd kills a unit that does not end by itself after 90 s (DefaultTimeoutStopSec=)."""
_START_TIMEOUT_S = 100
"""How long a script may take to report that it is in effect: a busy machine starts few processes a second."""
_START_STOPPED = """
systemctl reset-failed "$0" 2>/dev/null
systemctl start "$0"
"""
# Kubelet and runtime have priority: each service has a weight of 100.
_START = f"""
systemctl --quiet is-active "$0" || systemd-run --quiet --collect --expand-environment=no --unit="$0" \\
    --service-type="$2" --property=NotifyAccess=all --property=TimeoutStartSec={_START_TIMEOUT_S} \\
    --property=TasksMax=infinity --property=CPUWeight=20 sh -c "$1"
"""
# Stopping a missing unit fails; the probes ask the kernel whether it is gone.
_STOP = """
systemctl stop "$0" 2>/dev/null
systemctl reset-failed "$0" 2>/dev/null
true
"""
READY = "systemd-notify --ready"
"""The command by which a script reports that it is in effect; systemd-run waits for it (Type=notify)."""
HEALTH_PORT = 10256
"""The port of kube-proxy's health check (pkg/proxy/apis/config/v1alpha1/defaults.go)."""
_TABLE = "kube-proxy"
"""The name of kube-proxy's tables, in both families (pkg/proxy/nftables/proxier.go, `kubeProxyTable`)."""
_PROXY = "kube-proxy.service"
# Adding the table first makes the deletion succeed if it does not exist.
_FORGET = f"""
for family in ip ip6; do nft "add table $family {_TABLE}; delete table $family {_TABLE}" || exit 1; done
rm -f "$0"
"""
_CONNECT_TIMEOUT_S = 2
_CONNECT = f"timeout {_CONNECT_TIMEOUT_S} bash -c 'exec 3<>\"/dev/tcp/$0/$1\"'"
_SERVES = f'{_CONNECT} 127.0.0.1 "$2" && {_CONNECT} "$0" "$1"'
_IS_REMOVED = f"""
{_CONNECT} 127.0.0.1 "$2" && exit 1
nft list tables | grep -q ' {_TABLE}$' && exit 1
{_CONNECT} "$0" "$1" && exit 1
exit 0
"""


@dataclass(frozen=True)
class UnitDown(Fault):
    """Stop of `unit` on `node`; healing starts it. Any but the kubelet's needs the feature `systemd`.

    The fault ends with a power cycle, which starts every unit.
    """

    name = "unit-down"
    ends_with_power = True
    ends_components = True
    timeout_s = _STOP_TIMEOUT_S
    unit: str = KUBELET

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that starts the unit, running or not."""
        return ["sh", "-c", _START_STOPPED, self.unit]

    def available(self, machine: Shell) -> str:
        """Require a unit that is running."""
        state = self._state(machine)
        return "" if state == "active" else f"{self.unit} of {self.node} is {state}"

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["systemctl", "stop", self.unit])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the unit is stopped; for the kubelet, whether its port is closed."""
        if self.unit == KUBELET:
            return machine.answers_on_control() and not machine.serves_kubelet()
        return self._state(machine) in ("inactive", "failed")

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the unit runs; for the kubelet, whether it serves."""
        return has_booted(machine) if self.unit == KUBELET else self._state(machine) == "active"

    def _state(self, machine: Shell) -> str:
        """Return the unit's state. Raises MachineError if the service manager does not say it."""
        completed = answer_of(machine, "systemctl", "is-active", self.unit)
        state = completed.stdout.strip()
        if not state:
            raise MachineError(f"{self.node}: state of {self.unit}: {completed.stderr.strip()}")
        return state


@dataclass(frozen=True)
class UnitUp(Fault):
    """Service on `node` that runs `script` in a shell; healing stops it with all processes that it started.

    A script that runs `systemd-notify --ready` is injected from then on. It ends with a power cycle. The
    script should leave no files, however it ends: they are not removed. Needs the feature `systemd`.
    """

    name = "unit-up"
    ends_with_power = True
    timeout_s = _STOP_TIMEOUT_S
    script: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[UnitUp]:
        command = "systemctl list-units --all --plain --no-legend 'nodeproof-up-*' 2>/dev/null || :"
        listed = output_of(machine, "sh", "-c", command)
        ids = ids_in(listed, r"nodeproof-up-ID\.service\b")
        return [cls(machine.name, "", id=fault_id) for fault_id in ids]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that stops the unit, running or not."""
        return ["sh", "-c", _STOP, self._unit]

    def available(self, machine: Shell) -> str:
        has_systemd = succeeds(machine, "test", "-d", "/run/systemd/system")
        return "" if has_systemd else f"{self.node} has no systemd"

    def inject(self, machine: Shell) -> None:
        service_type = "notify" if READY in self.script else "exec"
        self.run(machine, ["sh", "-c", _START, self._unit, self.script, service_type])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel has processes of the unit."""
        command = 'cat "/sys/fs/cgroup/system.slice/$0/cgroup.procs" 2>/dev/null || :'
        return bool(output_of(machine, "sh", "-c", command, self._unit).split())

    def is_healed(self, machine: Machine) -> bool:
        return not self.is_injected(machine)

    @property
    def _unit(self) -> str:
        return f"nodeproof-up-{self.id}.service"


@dataclass(frozen=True)
class KubeProxy(Fault):
    """Upstream's kube-proxy on `node`, in nftables mode; healing kills it and deletes its tables.

    The node reaches the API at its Service's address, as the probes check. The fault ends with a power cycle,
    and so do the tables. Needs the feature `proxy`.
    """

    name = "kube-proxy"
    address: str = SERVICE_ADDRESS
    port: int = 443

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[KubeProxy]:
        listed = output_of(machine, "sh", "-c", "ls -d /run/nodeproof-kube-proxy-* 2>/dev/null")
        return [
            cls(machine.name, id=fault_id) for fault_id in ids_in(listed, "/run/nodeproof-kube-proxy-ID$")
        ]

    def available(self, machine: Shell) -> str:
        """Require a node whose host can start a kube-proxy and that has none."""
        if not succeeds(machine, "systemctl", "cat", _PROXY):
            return f"{self.node} cannot have a kube-proxy: its host cannot start one"
        others = self.leftovers_on(machine)
        return f"{self.node} has a kube-proxy already: {others[0].id}" if others else ""

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["touch", self._file])
        self.run(machine, ["systemctl", "start", _PROXY])

    def heal(self, machine: Shell) -> None:
        """Kill kube-proxy and delete its tables, if any; skip a node that is off, which has neither."""
        if machine.is_powered():
            self.run(machine, ["systemctl", "stop", _PROXY])
            self.run(machine, ["sh", "-c", _FORGET, self._file])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether kube-proxy is healthy and the node reaches the Service."""
        return self._succeeds(machine, _SERVES)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether its port is closed, its tables are gone and the Service is unreachable."""
        return self._succeeds(machine, _IS_REMOVED)

    @property
    def _file(self) -> str:
        return f"/run/nodeproof-kube-proxy-{self.id}"

    def _succeeds(self, machine: Machine, script: str) -> bool:
        return succeeds(machine, "sh", "-c", script, self.address, str(self.port), str(HEALTH_PORT))
