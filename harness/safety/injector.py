"""The only caller of Fault.inject: guard, ledger, dead-man's switch, probe, and the way back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import tenacity

from harness.checks.moments import fault_step
from harness.faults import Fault
from harness.machines.machine import Machine, MachineError
from harness.model.judgment import Moment
from harness.model.problem import OutsideError, Problem
from harness.safety.guard import Record, Target, check
from harness.safety.ledger import Ledger

Json = Any
INJECT_LIMIT_S = 10.0
HEAL_LIMIT_S = 30.0
STILL_IN_LIMIT_S = 3.0
"""How long the probe before healing may take to see the fault once more: one that went by itself proves
nothing.
"""
TTL_S = 45.0
"""How long a fault may outlive the harness; renewed while the harness lives."""
RENEW_PERIOD_S = TTL_S / 3
_PROBE_PERIOD_S = 0.1


class NotInjected(Exception):
    """The fault's command went through, and no probe sees the harm."""


class Unavailable(Exception):
    """The machine can't have this fault."""


class Deadman(Protocol):
    """Where a dead-man's switch is armed: out of the fault's reach."""

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew; a `ttl_s` of 0 disarms."""
        ...


Append = Callable[..., None]
"""`Recording.append`: kind, t, data."""


@dataclass(frozen=True)
class Cut:
    """A fault that is in: its moments, to judge by."""

    fault: Fault

    @property
    def began(self) -> Moment:
        """When the harm was done."""
        return fault_step(self.fault.id, "injected")

    @property
    def healed(self) -> Moment:
        """When it was undone."""
        return fault_step(self.fault.id, "healed")


@dataclass
class Injector:
    """Injects and heals on one lab's machines; `quarantined` collects nodes whose heal no probe could
    prove.
    """

    machine: Callable[[str], Machine]
    target: Callable[[str], Target]
    record: Callable[[], Record]
    ledger: Ledger
    deadman: Deadman
    quarantined: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)

    @contextmanager
    def inject(self, fault: Fault, declared: Collection[str], append: Append) -> Iterator[Cut]:
        """Hold a fault for the length of the context.

        Raises Refused, Unavailable before anything was touched, NotInjected or MachineError after it was
        healed again.
        """
        machine = self.machine(fault.node)
        check(self.target(fault.node), self.record(), declared, self.active)
        unavailable = fault.available(machine)
        if unavailable:
            raise Unavailable(unavailable)
        note = _Notes(self.ledger, fault, append)
        note.write("planned")
        self.active.add(fault.node)
        renewal = _Renewal(self.deadman, fault)
        try:
            self.deadman.arm(fault.to_json(), TTL_S)
            note.write("armed")
            renewal.start()
            self._do(fault, machine, note)
            yield Cut(fault)
            if not _seen(lambda: fault.is_injected(machine), STILL_IN_LIMIT_S):
                note.write("unproven")
        finally:
            self._undo(fault, machine, note, renewal)
            self.active.discard(fault.node)

    def _do(self, fault: Fault, machine: Machine, note: _Notes) -> None:
        note.write("injecting")
        fault.inject(machine)
        done_t = time.monotonic()
        if not _seen(lambda: fault.is_injected(machine), INJECT_LIMIT_S):
            note.write("unproven")
            raise NotInjected(
                f"no probe sees {fault.to_json()['fault']} on {fault.node} within {INJECT_LIMIT_S:g} s"
            )
        note.write("injected", done_t)

    def _undo(self, fault: Fault, machine: Machine, note: _Notes, renewal: _Renewal) -> None:
        """Heal, prove, disarm, close; a heal that can't be proven leaves the switch armed and the entry
        open.
        """
        note.write("healing")
        healed, done_t = False, time.monotonic()
        try:
            fault.heal(machine)
            done_t = time.monotonic()
            healed = _seen(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
        except MachineError:
            healed = False
        finally:
            renewal.stop()
            if healed:
                note.write("healed", done_t)
                self.deadman.arm(fault.to_json(), 0)
                note.write("closed")
            else:
                self.quarantined.add(fault.node)
                note.write("unhealed")


class _Renewal:
    """Keeps a dead-man's switch from firing while the harness lives."""

    def __init__(self, deadman: Deadman, fault: Fault) -> None:
        self._deadman = deadman
        self._fault = fault.to_json()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def start(self) -> None:
        """Renew from now on, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; once this returns nothing arms the switch behind a disarming."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=HEAL_LIMIT_S)

    def _renew(self) -> None:
        while not self._stopping.wait(RENEW_PERIOD_S):
            with contextlib.suppress(OutsideError, Problem):
                self._deadman.arm(self._fault, TTL_S)


@dataclass(frozen=True)
class _Notes:
    """Writes each step to the ledger, which survives, and to the history, which is judged."""

    ledger: Ledger
    fault: Fault
    append: Append

    def write(self, step: str, t: float | None = None) -> None:
        data = self.fault.to_json()
        self.ledger.write(step, data)
        self.append("fault", t, id=self.fault.id, fault=dict(data), node=self.fault.node, step=step)


def heal_unfinished(ledger: Ledger, heal: Callable[[Mapping[str, Json]], bool]) -> list[str]:
    """Heal every open entry of a ledger with `heal`, which says whether a probe proved it; gives what stays
    open.
    """
    left = []
    for entry in ledger.unfinished():
        if heal(entry.fault):
            ledger.write("closed", entry.fault)
        else:
            left.append(f"{entry.fault['fault']} on {entry.fault['node']} ({entry.fault['id']})")
    return left


def _seen(probe: Callable[[], bool], limit_s: float) -> bool:
    """Repeat a probe until it says yes or its time is over; a machine that does not answer yet is a no."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(_PROBE_PERIOD_S),
        retry=tenacity.retry_if_result(lambda seen: not seen)
        | tenacity.retry_if_exception_type(MachineError),
        retry_error_callback=lambda _state: False,
    )
    return bool(retry(probe))
