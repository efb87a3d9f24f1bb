"""What a cluster's cloud was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.faults.cloud import STARTED, clouds_on
from nodeproof.machines.machine import MachineError
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import CLOUD
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import Word, lines_of
from nodeproof.recording.wall import wall_offset_s
from nodeproof.sources.loss import no_room, torn
from nodeproof.sources.source import Hearing, Told, any_word, last_heard

_LIMIT_S = 10.0


@dataclass(frozen=True)
class CloudCalls:
    """What the cloud was asked about a node by the fault `cloud`: of one method, such as `InstanceExists`, or
    of each.
    """

    node: str
    method: str = ""

    @property
    def by(self) -> str:
        """Node and method are part of it."""
        return f"cloud asked about {self.node}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these calls."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """Up to when it was heard."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the calls of the cloud that there is now. Raises MachineError where there is none."""
        lab, history = hearing.lab, hearing.history
        machine, until_t = lab.fleet.machine(CLOUD), time.monotonic()
        found = clouds_on(machine)
        if len(found) != 1:
            raise MachineError(f"{len(found)} clouds to be heard")
        read = machine.run(["cat", f"{CLOUD}/cloud-{found[0].id}.calls"], deadline_s=_LIMIT_S)
        calls, unsure = calls_of(read.stdout, history, until_t)
        words = [
            Word(call.t, f"{call.method} {call.node}")
            for call in calls
            if call.node == self.node and self.method in ("", call.method)
        ]
        moved_s = abs(wall_offset_s() - history.wall_offset_s(until_t))
        return Told(words, until_t, moved_s, [*unsure, *no_room(hearing, until_t)])


@dataclass(frozen=True)
class Call:
    """What a cloud was asked at `t` (s, monotonic)."""

    t: float
    method: str
    node: str


def calls_of(text: str, history: History, until_t: float) -> tuple[Sequence[Call], Sequence[Lost]]:
    """Each call in a file of calls that was read at `until_t` (s), and where one may be missing.

    A call is written down before it is answered, and before the first of them that the provider started.
    """
    read = [_call(line, history) for line in lines_of(text)]
    calls, told_in = [call for call in read if call is not None], (history.began_t, until_t)
    if not calls or calls[0].method != STARTED:
        lost = Lost(
            history.began_t, calls[0].t if calls else until_t, "the cloud's calls lack their beginning"
        )
        return calls, [lost]
    times = [None if call is None else call.t for call in read]
    unsure = torn(times, told_in, "a line of the cloud's calls is torn")
    if not text.endswith("\n") and times[-1] is not None:
        unsure += torn([times[-1], None], told_in, "the last line of the cloud's calls is torn")
    return calls, unsure


def _call(line: str, history: History) -> Call | None:
    """What a line says; None of one that is torn."""
    try:
        told = json.loads(line)
        return Call(history.from_wall(told["time"]), str(told["method"]), str(told.get("node", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
