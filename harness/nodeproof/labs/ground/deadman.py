"""The lab's dead-man's switches: faults whose harness is gone are healed from here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tenacity

from nodeproof.labs.ground.processes import EventLog
from nodeproof.model.problem import Problem

Json = Any
_RETRY_PERIOD_S = 1.0


@dataclass
class _Switch:
    """One arming of a fault's switch; `over` once it was renewed or disarmed."""

    fault: Mapping[str, Json]
    due_t: float
    over: threading.Event = field(default_factory=threading.Event)


class Deadman:
    """Heals faults whose time to live is over; armed, renewed and disarmed by the harness."""

    def __init__(self, heal: Callable[[Mapping[str, Json]], None], events: EventLog) -> None:
        self._heal = heal
        self._events = events
        self._lock = threading.Lock()
        self._switches: dict[str, _Switch] = {}
        self._faults: dict[str, Mapping[str, Json]] = {}
        self._disarmed: set[str] = set()

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch of `fault`; disarm it for good with a `ttl_s` of 0.

        Raises Problem when it was disarmed: a renewal that comes late must not arm it behind that.
        """
        name = str(fault["id"])
        with self._lock:
            if ttl_s > 0 and name in self._disarmed:
                said = f"the switch of fault {name} was disarmed"
                raise Problem(said, f"dead-man's switch of {fault['node']}", "make another fault")
            held = self._switches.pop(name, None)
            if held is not None:
                held.over.set()
            if ttl_s <= 0:
                self._faults.pop(name, None)
                self._disarmed.add(name)
                return
            self._faults.setdefault(name, dict(fault))
            self._switches[name] = switch = _Switch(dict(fault), time.monotonic() + ttl_s)
        threading.Thread(target=self._wait, args=(switch, ttl_s), daemon=True).start()

    def armed(self) -> Mapping[str, float]:
        """The armed switches and the seconds left of each."""
        now = time.monotonic()
        with self._lock:
            return {name: round(switch.due_t - now, 1) for name, switch in self._switches.items()}

    def faults(self) -> list[Mapping[str, Json]]:
        """Every fault that was armed and never disarmed, oldest first: no probe has proven its heal."""
        with self._lock:
            return list(self._faults.values())

    def _wait(self, switch: _Switch, ttl_s: float) -> None:
        if switch.over.wait(ttl_s):
            return
        self._tell("deadman", switch)
        # For as long as it takes, and whatever is raised: what the fault needs may itself be healing, as a
        # node that boots. This thread ends with the lab, the switch, or the fault.
        retry = tenacity.Retrying(
            stop=tenacity.stop_when_event_set(switch.over),
            sleep=tenacity.sleep_using_event(switch.over),
            wait=tenacity.wait_fixed(_RETRY_PERIOD_S),
            retry=tenacity.retry_if_exception_type(Exception),
            before_sleep=lambda state: self._tell_why(switch, state),
            retry_error_callback=lambda _state: None,
        )
        retry(self._heal, switch.fault)
        with self._lock:
            if self._switches.get(str(switch.fault["id"])) is switch:
                del self._switches[str(switch.fault["id"])]

    def _tell_why(self, switch: _Switch, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if state.attempt_number == 1 and error is not None:
            said = str(error).partition("\n")[0] or type(error).__name__
            self._tell("deadman-failed", switch, reason=said)

    def _tell(self, kind: str, switch: _Switch, **data: Json) -> None:
        self._events.write(kind, id=switch.fault["id"], node=switch.fault["node"], **data)
