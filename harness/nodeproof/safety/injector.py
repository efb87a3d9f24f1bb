"""The only caller of Fault.inject: guard, ledger, dead-man's switch, probe, and the way back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tenacity

from nodeproof.checks.lasting import lasted
from nodeproof.checks.moments import fault_step
from nodeproof.faults import Fault
from nodeproof.faults.fence import Fenced, heal_for_good
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.deadman import Deadman
from nodeproof.safety.guard import Declared, Record, Target, check_plan, check_target
from nodeproof.safety.ledger import Ledger
from nodeproof.safety.shield import uninterrupted

Json = Any
INJECT_LIMIT_S = 30.0
"""How long a probe may take to see the harm: on a busy machine a look alone may take its whole deadline."""
HEAL_LIMIT_S = 120.0
"""How long after healing a probe may take to prove it: a kubelet comes up some time after sshd."""
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


Append = Callable[..., None]
"""`Recording.append`: kind, t, data."""


@dataclass(frozen=True)
class Cut:
    """A fault that is in: its moments, to judge by."""

    fault: Fault

    @property
    def ordered(self) -> Moment:
        """When the harm was asked for: what a slow machine does about it may come before `began`."""
        return fault_step(self.fault.id, "injecting")

    @property
    def began(self) -> Moment:
        """When the harm was done."""
        return fault_step(self.fault.id, "injected")

    @property
    def healing(self) -> Moment:
        """When undoing it began: the harm ends between this and `healed`."""
        return fault_step(self.fault.id, "healing")

    @property
    def healed(self) -> Moment:
        """When it was undone."""
        return fault_step(self.fault.id, "healed")

    @property
    def lasted(self) -> Check:
        """It was in still when undoing it began: nobody else took back what was done."""
        return lasted(self.fault.id)


@dataclass
class Injector:
    """Injects and heals on one lab's machines; `quarantined` collects nodes whose heal no probe could
    prove.
    """

    machine: Callable[[str], Machine]
    targets: Callable[[str, Sequence[str]], Sequence[Target]]
    """What is said just now of where a fault is done, and of the nodes that it harms."""
    record: Callable[[], Record]
    control_planes: Callable[[], frozenset[str]]
    """The nodes that run the cluster's control plane."""
    ledger: Ledger
    deadman: Deadman
    quarantined: set[str] = field(default_factory=set)
    active: dict[str, Fault] = field(default_factory=dict)
    """The faults that are in, by id."""
    say: Callable[[str], None] = field(default=lambda _line: None)
    """Tells a person who waits."""

    @contextmanager
    def inject(self, fault: Fault, declared: Declared, append: Append) -> Iterator[Cut]:
        """Hold a fault for the length of the context.

        Raises Refused, Unavailable before anything was touched, NotInjected or MachineError after it was
        healed again.
        """
        record = self.record()
        lost = {node for other in self.active.values() for node in other.harms} | self.quarantined
        check_plan(fault.node, fault.places, fault.harms, record, declared, lost, self.control_planes)
        for target in self.targets(fault.node, fault.harms):
            check_target(target, record)
        machine = self.machine(fault.node)
        unavailable = fault.available(machine)
        if unavailable:
            raise Unavailable(unavailable)
        note = _Notes(self.ledger, fault, append)
        note.write("planned")
        self.active[fault.id] = fault
        renewal = _Renewal(self.deadman, fault)
        fenced = Fenced(machine, fault.id)
        try:
            self.deadman.arm(fault.to_json(), TTL_S)
            note.write("armed")
            renewal.start()
            self._do(fault, fenced, machine, note)
            yield Cut(fault)
            is_in = self.is_in(fault)
            if not is_in:
                note.write(_not_in(is_in))
        finally:
            with uninterrupted(self.say_what_is_in):
                self._undo(fault, fenced, machine, note, renewal)
                del self.active[fault.id]

    @contextmanager
    def standing(self, append: Append) -> Iterator[None]:
        """Tell a recording what was in before it began, with the time at which it begins, and whether that is
        in still when it ends.
        """
        stands = list(self.active.values())
        for fault in stands:
            for step in ("injecting", "injected"):
                append("fault", None, **_told(fault, step), stands=True)
        try:
            yield
        finally:
            for fault in stands:
                is_in = self._stands(fault)
                if not is_in:
                    append("fault", None, **_told(fault, _not_in(is_in)), stands=True)

    def is_in(self, fault: Fault) -> bool | None:
        """Whether a probe sees a fault that was injected; None where none is answered."""
        machine = self.machine(fault.node)
        return fault.id in self.active and _seen(lambda: fault.is_injected(machine), STILL_IN_LIMIT_S)

    def _stands(self, fault: Fault) -> bool | None:
        """Whether it is in; of one that nobody can ask for, nobody knows."""
        try:
            return self.is_in(fault)
        except (OutsideError, Problem):
            return None

    def say_what_is_in(self) -> None:
        """Name the faults that are in, and what becomes of them if nobody waits."""
        for fault in list(self.active.values()):
            self.say(
                f"{_name(fault)} is being healed, and is waited for; else its dead-man's switch heals it "
                f"within {TTL_S:g} s of this process's end"
            )

    def _do(self, fault: Fault, fenced: Fenced, machine: Machine, note: _Notes) -> None:
        note.write("injecting")
        fault.inject(fenced)
        done_t = time.monotonic()
        if not _seen(lambda: fault.is_injected(machine), INJECT_LIMIT_S):
            note.write("unproven")
            raise NotInjected(
                f"no probe sees {fault.to_json()['fault']} on {fault.node} within {INJECT_LIMIT_S:g} s"
            )
        note.write("injected", done_t)

    def _undo(self, fault: Fault, fenced: Fenced, machine: Machine, note: _Notes, renewal: _Renewal) -> None:
        """Heal, prove, disarm, close; a heal that can't be proven leaves the switch armed and the entry
        open.

        What can't be written down or disarmed keeps nothing from being healed: the entry stays open then.
        """
        note.try_write("healing")
        healed_t = None
        try:
            heal = fault.heal if fenced.has_ended else partial(heal_for_good, fault)
            healed_t = healed_at(fault, machine, HEAL_LIMIT_S, heal)
        finally:
            renewal.stop()
            if healed_t is not None:
                note.try_write("healed", healed_t)
                self._disarm(fault, note)
            else:
                self.quarantined |= {fault.node, *fault.harms}
                note.try_write("unhealed")
                self.say(
                    f"no probe proves that {_name(fault)} is healed; its dead-man's switch heals it within "
                    f"{TTL_S:g} s, `nodeproof heal` at once"
                )

    def _disarm(self, fault: Fault, note: _Notes) -> None:
        with contextlib.suppress(OutsideError, Problem):
            self.deadman.arm(fault.to_json(), 0)
            note.try_write("closed")


@contextmanager
def held_off(deadman: Deadman, fault: Fault) -> Iterator[None]:
    """Keep a switch that somebody else armed from firing into a healing, which may take as long as a boot."""
    renewal = _Renewal(deadman, fault)
    with contextlib.suppress(OutsideError, Problem):
        deadman.arm(fault.to_json(), TTL_S)
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()


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
        """Write a step down before anything else is done. Raises OSError."""
        self.ledger.write(step, self.fault.to_json())
        self._tell(step, t)

    def try_write(self, step: str, t: float | None = None) -> None:
        """Write on the way back, where a full disk must stop nothing."""
        with contextlib.suppress(OSError):
            self.ledger.write(step, self.fault.to_json())
        with contextlib.suppress(OSError):
            self._tell(step, t)

    def _tell(self, step: str, t: float | None) -> None:
        self.append("fault", t, **_told(self.fault, step))


def _told(fault: Fault, step: str) -> Mapping[str, Json]:
    """What a history says of a fault's step."""
    known = {"id": fault.id, "fault": dict(fault.to_json()), "node": fault.node, "step": step}
    return {**known, "ends_components": fault.ends_components}


def _name(fault: Fault) -> str:
    return f"{fault.to_json()['fault']} on {fault.node} ({fault.id})"


def healed_at(
    fault: Fault, machine: Machine, limit_s: float, heal: Callable[[Machine], None]
) -> float | None:
    """Heal; when that was (s, monotonic), or None when no probe proves it within `limit_s`."""
    try:
        heal(machine)
        done_t = time.monotonic()
        return done_t if _seen(lambda: fault.is_healed(machine), limit_s) else None
    except (OutsideError, Problem):
        return None


def _not_in(is_in: bool | None) -> str:
    """The step of a fault that no probe saw: only a probe that was answered says that it is gone."""
    return "unanswered" if is_in is None else "unproven"


def _seen(probe: Callable[[], bool], limit_s: float) -> bool | None:
    """Repeat a probe until it says yes or its time is over; None where the machine did not answer the last
    one.
    """
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(_PROBE_PERIOD_S),
        retry=tenacity.retry_if_result(lambda seen: not seen)
        | tenacity.retry_if_exception_type(MachineError),
        retry_error_callback=_last_answer,
    )
    seen: bool | None = retry(probe)
    return seen


def _last_answer(state: tenacity.RetryCallState) -> bool | None:
    return None if state.outcome is None or state.outcome.failed else False
