"""The lab's dead-man's switches: they heal faults whose harness is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeproof.labs.base.processes import EventLog
from nodeproof.model.problem import Problem

Json = Any
_RETRY_PERIOD_S = 1.0


@dataclass
class _Switch:
    """One arming of a fault's switch; `over` is set once it is renewed or disarmed."""

    fault: Mapping[str, Json]
    due_t: float
    over: threading.Event = field(default_factory=threading.Event)


class Deadman:
    """Heals faults whose time to live has passed; the harness arms, renews and disarms them."""

    def __init__(self, heal: Callable[[Mapping[str, Json]], None], events: EventLog) -> None:
        self._heal = heal
        self._events = events
        self._lock = threading.Lock()
        self._switches: dict[str, _Switch] = {}
        self._faults: dict[str, Mapping[str, Json]] = {}
        self._disarmed: set[str] = set()

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch of `fault`; a `ttl_s` of 0 disarms it for good.

        Raises Problem if it was disarmed before: a late renewal must not arm it again.
        """
        name = str(fault["id"])
        with self._lock:
            if ttl_s > 0 and name in self._disarmed:
                message = f"the switch of fault {name} was disarmed"
                raise Problem(message, f"dead-man's switch of {fault['node']}", "inject a new fault")
            previous = self._switches.pop(name, None)
            if previous is not None:
                previous.over.set()
            if ttl_s <= 0:
                self._faults.pop(name, None)
                self._disarmed.add(name)
                return
            self._faults.setdefault(name, dict(fault))
            self._switches[name] = switch = _Switch(dict(fault), time.monotonic() + ttl_s)
        threading.Thread(target=self._wait, args=(switch, ttl_s), daemon=True).start()

    def armed(self) -> Mapping[str, float]:
        """Return the armed switches and the seconds that each has left."""
        now = time.monotonic()
        with self._lock:
            return {name: round(switch.due_t - now, 1) for name, switch in self._switches.items()}

    def faults(self) -> list[Mapping[str, Json]]:
        """Return the faults that were armed and never disarmed, oldest first: their heal is unproven."""
        with self._lock:
            return list(self._faults.values())

    def _wait(self, switch: _Switch, ttl_s: float) -> None:
        if switch.over.wait(ttl_s):
            return
        self._log("deadman", switch)
        # Retry any error without a limit: the target may be recovering itself, such as a node that boots.
        # This thread ends with the lab, the switch or the fault.
        is_first = True
        while True:
            try:
                self._heal(switch.fault)
                break
            except Exception as error:
                if switch.over.is_set():
                    break
                if is_first:
                    reason = str(error).partition("\n")[0] or type(error).__name__
                    self._log("deadman-failed", switch, reason=reason)
                is_first = False
            switch.over.wait(_RETRY_PERIOD_S)
        with self._lock:
            if self._switches.get(str(switch.fault["id"])) is switch:
                del self._switches[str(switch.fault["id"])]

    def _log(self, kind: str, switch: _Switch, **data: Json) -> None:
        self._events.write(kind, id=switch.fault["id"], node=switch.fault["node"], **data)
