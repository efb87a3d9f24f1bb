"""The lab's dead-man's switches: they heal faults whose harness has exited or hangs."""

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
    """One arming of a fault's switch, due at `due_t` (s) of the monotonic clock.

    `cancelled` is set once the switch is renewed or disarmed.
    """

    fault: Mapping[str, Json]
    due_t: float
    cancelled: threading.Event = field(default_factory=threading.Event)


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
        fault_id = str(fault["id"])
        with self._lock:
            if ttl_s > 0 and fault_id in self._disarmed:
                message = f"the switch of fault {fault_id} was disarmed"
                raise Problem(message, f"dead-man's switch of {fault['node']}", "inject a new fault")
            previous = self._switches.pop(fault_id, None)
            if previous is not None:
                previous.cancelled.set()
            if ttl_s <= 0:
                self._faults.pop(fault_id, None)
                self._disarmed.add(fault_id)
                return
            self._faults.setdefault(fault_id, dict(fault))
            self._switches[fault_id] = switch = _Switch(dict(fault), time.monotonic() + ttl_s)
        threading.Thread(target=self._wait, args=(switch, ttl_s), daemon=True).start()

    def armed(self) -> Mapping[str, float]:
        """Return the armed switches and the seconds that each has left."""
        now = time.monotonic()
        with self._lock:
            return {fault_id: round(switch.due_t - now, 1) for fault_id, switch in self._switches.items()}

    def faults(self) -> list[Mapping[str, Json]]:
        """Return the faults that were armed and never disarmed, oldest first.

        No probe confirmed that they are healed.
        """
        with self._lock:
            return list(self._faults.values())

    def _wait(self, switch: _Switch, ttl_s: float) -> None:
        if switch.cancelled.wait(ttl_s):
            return
        self._log("deadman", switch)
        # Retry any error without a limit: the target may be recovering itself, such as a node that boots.
        # The thread ends when the lab's process exits, the switch is cancelled, or healing succeeds.
        is_first = True
        while True:
            try:
                self._heal(switch.fault)
                break
            except Exception as error:
                if switch.cancelled.is_set():
                    break
                if is_first:
                    reason = str(error).partition("\n")[0] or type(error).__name__
                    self._log("deadman-failed", switch, reason=reason)
                is_first = False
            switch.cancelled.wait(_RETRY_PERIOD_S)
        with self._lock:
            if self._switches.get(str(switch.fault["id"])) is switch:
                del self._switches[str(switch.fault["id"])]

    def _log(self, kind: str, switch: _Switch, **data: Json) -> None:
        self._events.write(kind, id=switch.fault["id"], node=switch.fault["node"], **data)
