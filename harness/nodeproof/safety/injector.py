"""The only caller of Fault.inject: guard, ledger, dead-man's switch, probe, and healing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from nodeproof.checks.moments import fault_step
from nodeproof.checks.observations import lasted
from nodeproof.faults import Fault, classes_for
from nodeproof.faults.fence import FencedShell, heal_fenced
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.deadman import Deadman
from nodeproof.safety.guard import Declared, Record, Target, check_plan, check_target
from nodeproof.safety.ledger import FaultLedger
from nodeproof.safety.shield import uninterrupted
from nodeproof.waiting import wait_until

INJECT_TIMEOUT_S = 30.0
"""How long a probe may take to see the fault (s): on a busy machine one read may take its whole timeout."""
HEAL_TIMEOUT_S = 120.0
"""How long a probe may take to prove a healing (s): a kubelet starts some time after sshd."""
STILL_IN_TIMEOUT_S = 3.0
"""How long the probe before healing may take to see the fault again (s).

A fault that ended by itself proves nothing.
"""
TTL_S = 45.0
"""How long a fault may outlive the harness (s); renewed while the harness lives."""
RENEW_PERIOD_S = TTL_S / 3
_PROBE_PERIOD_S, _HEAL_PERIOD_S = 0.1, 2.0


class NotInjected(Exception):
    """The fault's command succeeded, but no probe sees the fault."""


class HealingFailed(Exception):
    """The machine, or what heals it, did not carry the healing out."""


class Unavailable(Exception):
    """The machine cannot have this fault."""


class Aborted(OutsideError):
    """The owner of the nodes ended a fault before its time; the message is the reason."""


def permit_all(_fault: Fault, _declared: Declared) -> None:
    """Permit every fault, as on machines that nodeproof started."""


Append = Callable[..., None]
"""`Recording.append`: kind, t, data."""


@dataclass(frozen=True)
class AbortPoll:
    """A poll of what aborts a fault: `reasons` returns why it must end now; none if it may stay.

    It is repeated `period_s` (s) after each answer, and must return in bounded time.
    """

    reasons: Callable[[], list[str]]
    period_s: float


NEVER = AbortPoll(list[str], 60.0)
"""The poll of machines that nodeproof started."""


@dataclass(frozen=True)
class Injection:
    """An active fault and its moments, for judging."""

    fault: Fault

    @property
    def requested_at(self) -> Moment:
        """The request for the fault: a slow machine may react before `injected_at`."""
        return fault_step(self.fault.id, "injecting")

    @property
    def injected_at(self) -> Moment:
        """The completed injection."""
        return fault_step(self.fault.id, "injected")

    @property
    def healing_at(self) -> Moment:
        """The beginning of the healing: the fault ends between this and `healed_at`."""
        return fault_step(self.fault.id, "healing")

    @property
    def healed_at(self) -> Moment:
        """The completed healing."""
        return fault_step(self.fault.id, "healed")

    @property
    def span(self) -> Mapping[str, Moment]:
        """The time of the active fault, as arguments of a check: `counted(moment, 1, 1, **fault.span)`."""
        return {"after": self.injected_at, "until": self.healing_at}

    @property
    def lasted(self) -> Check:
        """A check that the fault was still active when its healing began: nothing else undid it."""
        return lasted(self.fault.id)


@dataclass
class Injector:
    """Injects and heals faults on one lab's machines.

    `quarantined` collects nodes whose healing no probe could prove.
    """

    machine: Callable[[str], Machine]
    targets: Callable[[str, Sequence[str]], Sequence[Target]]
    """Current facts about the machine that a fault is injected on, and about the nodes that it affects."""
    record: Callable[[], Record]
    control_planes: Callable[[], frozenset[str]]
    """The nodes that run the cluster's control plane."""
    ledger: FaultLedger
    deadman: Deadman
    quarantined: set[str] = field(default_factory=set)
    active: dict[str, Fault] = field(default_factory=dict)
    """The active faults, by id."""
    say: Callable[[str], None] = field(default=lambda _line: None)
    """Prints a line for the user."""
    notify: Callable[[str, Fault], None] = field(default=lambda _step, _fault: None)
    """Called, and must return at once, when a fault is `injected`, `healed` or `unhealed`."""
    permit: Callable[[Fault, Declared], None] = field(default=permit_all)
    """Raises Refused unless the owner of the nodes permits the fault now."""
    abort: AbortPoll = NEVER
    """Polled while a fault is in: the owner of the nodes may end it."""
    heal_command: str = "nodeproof heal"
    """The command that heals what a run left."""
    _abort_reasons: list[str] = field(default_factory=list, init=False)
    """Why the active faults are aborted."""

    @contextmanager
    def inject(self, fault: Fault, declared: Declared, append: Append) -> Iterator[Injection]:
        """Inject a fault, and heal it when the context ends.

        Raises:
            Refused: The guard rejects the fault; nothing was changed.
            Unavailable: The machine cannot have the fault; nothing was changed.
            NotInjected: No probe sees the fault; it was healed again.
            Aborted: The owner of the nodes ended it before a probe saw it; it was healed again.
            MachineError: A machine did not answer; the fault was healed again.
        """
        self.permit(fault, declared)
        record = self.record()
        lost = {node for other in self.active.values() for node in other.affected_nodes} | self.quarantined
        check_plan(
            fault.node, fault.places, fault.affected_nodes, record, declared, lost, self.control_planes
        )
        for target in self.targets(fault.node, fault.affected_nodes):
            check_target(target, record)
        machine = self.machine(fault.node)
        unavailable = fault.available(machine)
        if unavailable:
            raise Unavailable(unavailable)
        step_log = _StepLog(self.ledger, fault, append)
        step_log.write("planned")
        self.active[fault.id] = fault
        renewal = _Renewal(self.deadman, fault)
        fenced = FencedShell(machine, fault.id)
        poll = AbortPoll(self._poll_abort, self.abort.period_s)
        watch = AbortWatch(poll, partial(self._abort, fault, machine, append, renewal))
        try:
            self.deadman.arm(fault.to_json(), TTL_S)
            step_log.write("armed")
            renewal.start()
            step_log.write("injecting")
            with contextlib.nullcontext() if fault.self_heal_command else self._unbroken(fault):
                fault.inject(fenced)
            watch.start()
            self._prove(fault, machine, step_log, watch)
            yield Injection(fault)
            is_active = self.is_active(fault)
            if not is_active:
                step_log.write(_inactive_step(is_active))
        finally:
            with uninterrupted(self.print_active):
                watch.stop(HEAL_TIMEOUT_S)
                self._undo(fault, fenced, machine, step_log, renewal)
                del self.active[fault.id]
                if not self.active:
                    self._abort_reasons.clear()

    @contextmanager
    def standing(self, append: Append) -> Iterator[None]:
        """Record the faults that are active when the recording begins, and whether they still are at its end.

        Their time is that of the beginning of the recording.
        """
        active = list(self.active.values())
        for fault in active:
            for step in ("injecting", "injected"):
                append("fault", None, **_entry(fault, step), stands=True)
        try:
            yield
        finally:
            for fault in active:
                is_active = self._is_active(fault)
                if not is_active:
                    append("fault", None, **_entry(fault, _inactive_step(is_active)), stands=True)

    def is_active(self, fault: Fault) -> bool | None:
        """Return whether a probe sees a fault that was injected; None if no probe gets an answer."""
        machine = self.machine(fault.node)
        return fault.id in self.active and _poll(lambda: fault.is_injected(machine), STILL_IN_TIMEOUT_S)

    def _is_active(self, fault: Fault) -> bool | None:
        """Return whether a fault is active; None if it cannot be determined."""
        try:
            return self.is_active(fault)
        except (OutsideError, Problem):
            return None

    def print_active(self) -> None:
        """Print the active faults, and what heals them if the user does not wait."""
        for fault in list(self.active.values()):
            self.say(
                f"healing {_name(fault)}, please wait; otherwise its dead-man's switch heals it "
                f"within {TTL_S:g} s of this process's end"
            )

    def _unbroken(self, fault: Fault) -> AbstractContextManager[None]:
        """Hold back signals: no fence keeps an action of a machine's host from coming after its healing."""
        return uninterrupted(lambda: self.say(f"injecting {_name(fault)}, please wait; then it is healed"))

    def _prove(self, fault: Fault, machine: Machine, step_log: _StepLog, watch: AbortWatch) -> None:
        """Wait until a probe sees an injected fault. Raises NotInjected, Aborted."""
        injected_t = time.monotonic()
        is_seen = _poll(lambda: bool(watch.reason) or fault.is_injected(machine), INJECT_TIMEOUT_S)
        if watch.reason:
            raise Aborted(watch.reason)
        if not is_seen:
            step_log.write("unproven")
            raise NotInjected(f"no probe sees {fault.name} on {fault.node} within {INJECT_TIMEOUT_S:g} s")
        step_log.write("injected", injected_t)
        self.notify("injected", fault)

    def _poll_abort(self) -> list[str]:
        """Return why faults must end: what the poll of one saw holds for all that are active."""
        if not self._abort_reasons:
            self._abort_reasons += self.abort.reasons()
        return list(self._abort_reasons)

    def _abort(
        self,
        fault: Fault,
        machine: Machine,
        append: Append,
        renewal: _Renewal,
        reason: str,
        stopping: threading.Event,
    ) -> None:
        """Heal a fault at once, whatever its scenario does meanwhile; the end of its context proves it.

        A healing that fails is tried again until the context ends. The dead-man's switch is not renewed any
        more, so that the node heals itself if nothing else does. Nothing that waits for the API or a terminal
        comes before the healing.
        """
        aborted_t = time.monotonic()
        renewal.cease()
        is_healed = _try_heal(fault, machine)
        # Neither a full disk nor a closed terminal may end this thread.
        with contextlib.suppress(Exception):
            append("fault", aborted_t, **_entry(fault, "aborted"), reason=reason)
        with contextlib.suppress(Exception):
            self.say(f"aborting {_name(fault)}: {reason}")
        while not is_healed and not stopping.wait(_HEAL_PERIOD_S):
            is_healed = _try_heal(fault, machine)

    def _undo(
        self, fault: Fault, fenced: FencedShell, machine: Machine, step_log: _StepLog, renewal: _Renewal
    ) -> None:
        """Heal, prove, disarm, close; an unproven healing leaves the switch armed and the entry open.

        A failure to write or to disarm does not stop the healing: the entry stays open then.
        """
        step_log.try_write("healing")
        healed_t, reason = None, ""
        try:
            heal = fault.heal if fenced.has_ended else partial(heal_fenced, fault)
            healed_t = healed_at(fault, machine, HEAL_TIMEOUT_S, heal)
        except (OutsideError, Problem) as error:
            reason = f" ({error})"
        finally:
            renewal.stop()
            if healed_t is not None:
                step_log.try_write("healed", healed_t)
                self._disarm(fault, step_log)
                self.notify("healed", fault)
            else:
                self.quarantined |= {fault.node, *fault.affected_nodes}
                step_log.try_write("unhealed")
                self.notify("unhealed", fault)
                self.say(
                    f"no probe proves that {_name(fault)} is healed{reason}; its dead-man's switch heals it "
                    f"within {TTL_S:g} s, or run `{self.heal_command}` now"
                )

    def _disarm(self, fault: Fault, step_log: _StepLog) -> None:
        with contextlib.suppress(OutsideError, Problem):
            self.deadman.arm(fault.to_json(), 0)
            step_log.try_write("closed")


@contextmanager
def hold_off(deadman: Deadman, fault: Fault) -> Iterator[None]:
    """Keep a switch of another process from firing during a healing, which may take as long as a boot."""
    renewal = _Renewal(deadman, fault)
    with contextlib.suppress(OutsideError, Problem):
        deadman.arm(fault.to_json(), TTL_S)
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()


class _Renewal:
    """Renews a dead-man's switch while the harness lives."""

    def __init__(self, deadman: Deadman, fault: Fault) -> None:
        self._deadman, self._fault = deadman, fault.to_json()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def start(self) -> None:
        """Renew from now on, until `stop`."""
        self._thread.start()

    def cease(self) -> None:
        """Renew no more."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop renewing; once this returns nothing can arm the switch after it was disarmed."""
        self.cease()
        if self._thread.is_alive():
            self._thread.join(timeout=HEAL_TIMEOUT_S)

    def _renew(self) -> None:
        while not self._stopping.wait(RENEW_PERIOD_S):
            with contextlib.suppress(OutsideError, Problem):
                self._deadman.arm(self._fault, TTL_S)


class AbortWatch:
    """Polls while a fault is in, and calls `abort` once, in a thread of its own.

    `abort` gets the reason, and an event that is set when the fault is being healed anyway.

    A poll that fails aborts, too: without an answer nobody knows whether the fault may stay.
    """

    def __init__(self, poll: AbortPoll, abort: Callable[[str, threading.Event], None]) -> None:
        self._poll, self._abort = poll, abort
        self._stopping, self._deciding = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.reason = ""
        """Why the fault is aborted; empty if it is not."""

    def start(self) -> None:
        """Poll from now on, until `stop` or the abort."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop polling, and wait up to `timeout_s` for an abort that has begun, but for no other answer."""
        with self._deciding:
            self._stopping.set()
        if self.reason:
            self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                reasons = self._poll.reasons()
            except Exception as error:  # whatever fails, nobody knows that the fault may stay
                reasons = [f"the poll failed: {error!r}"]
            with self._deciding:
                # A fault that is being healed already is not aborted.
                if not self._stopping.is_set():
                    self.reason = "; ".join(reasons)
            if self.reason:
                self._abort(self.reason, self._stopping)
                return
            self._stopping.wait(self._poll.period_s)


@dataclass(frozen=True)
class _StepLog:
    """Writes each step to the ledger, which survives, and to the history, which is judged."""

    ledger: FaultLedger
    fault: Fault
    append: Append

    def write(self, step: str, t: float | None = None) -> None:
        """Write a step before the next action. Raises OSError, Problem."""
        self.ledger.write(step, self.fault.to_json())
        self.append("fault", t, **_entry(self.fault, step))

    def try_write(self, step: str, t: float | None = None) -> None:
        """Write a step during healing, which a full disk or a locked ledger must not stop."""
        with contextlib.suppress(OSError, Problem):
            self.ledger.write(step, self.fault.to_json())
        with contextlib.suppress(OSError):
            self.append("fault", t, **_entry(self.fault, step))


def _entry(fault: Fault, step: str) -> Mapping[str, Json]:
    """Return the history entry of a fault's step."""
    entry = {"id": fault.id, "fault": dict(fault.to_json()), "node": fault.node, "step": step}
    return {**entry, "ends_components": fault.ends_components}


def _name(fault: Fault) -> str:
    return f"{fault.name} on {fault.node} ({fault.id})"


def _try_heal(fault: Fault, machine: Machine) -> bool:
    """Heal a fault, and return whether the machine carried that out."""
    try:
        fault.heal(machine)
    except (OutsideError, Problem, OSError):
        return False
    return True


def healed_at(
    fault: Fault, machine: Machine, timeout_s: float, heal: Callable[[Machine], None]
) -> float | None:
    """Heal and return when that was (s, monotonic), or None if no probe proves it within `timeout_s`.

    Raises:
        OutsideError, Problem: The healing was not carried out.
    """
    heal(machine)
    healed_t = time.monotonic()
    return healed_t if _poll(lambda: fault.is_healed(machine), timeout_s) else None


def heal_unfinished(
    ledger: FaultLedger, armed: Sequence[Mapping[str, Json]], heal: Callable[[Mapping[str, Json]], bool]
) -> list[str]:
    """Heal the open faults of the ledger, and the `armed` ones that it lacks (a ledger may be gone).

    The newest goes first, as a later fault may prevent an earlier one from being healed. A fault of a plugin
    may raise any error; it blocks no other fault.

    Args:
        ledger: The ledger of the lab.
        armed: Faults whose dead-man's switch is armed.
        heal: Heals a fault and returns whether a probe proved it.

    Returns:
        The faults that stay open.

    Raises:
        OSError: The ledger cannot be written.
    """
    faults = {str(entry.fault["id"]): entry.fault for entry in ledger.unfinished()}
    for fault in armed:
        faults.setdefault(str(fault["id"]), fault)
    left = []
    for fault in reversed(list(faults.values())):
        error = ""
        try:
            is_healed = heal(fault)
        except HealingFailed as failed:
            is_healed, error = False, f": {failed}"
        except (OutsideError, Problem, OSError):
            raise
        except Exception as raised:
            is_healed, error = False, f": {raised!r}"
        if is_healed:
            try:
                ledger.write("closed", fault)
            except Problem as problem:
                # Another process holds the ledger; the other faults are healed all the same.
                is_healed, error = False, f": {problem.line}"
        if not is_healed:
            place = fault.get("node", fault.get("path"))
            left.append(f"{fault.get('fault')} on {place} ({fault['id']}){error}")
    return left


def sweep(machine: Callable[[str], Shell], name: str) -> None:
    """Heal leftovers of faults on a machine that no ledger knows.

    Raises:
        MachineError: A machine did not answer.
        Problem: A fault of a plugin raised another error; all other faults are healed.
    """
    errors = []
    for fault_class in classes_for(machine(name)):
        try:
            for fault in fault_class.leftovers_on(machine(name)):
                heal_fenced(fault, machine(fault.node))
        except (OutsideError, Problem):
            raise
        except Exception as error:
            errors.append(f"{fault_class.name}: {error!r}")
    if errors:
        raise Problem(f"leftovers are not healed: {'; '.join(errors)}", name, "correct the plugin")


def _inactive_step(is_active: bool | None) -> str:
    """Return the step for a fault that no probe saw: only an answered probe shows that it has ended."""
    return "unanswered" if is_active is None else "unproven"


def _poll(probe: Callable[[], bool], timeout_s: float) -> bool | None:
    """Repeat a probe until it succeeds or times out; None if the machine did not answer the last one."""
    try:
        return wait_until(probe, timeout_s, _PROBE_PERIOD_S, (MachineError,))
    except MachineError:
        return None
