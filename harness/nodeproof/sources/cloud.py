"""Requests to a cluster's cloud."""

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
    """Requests about a node to the cloud of the fault `cloud`.

    Of one method, such as `InstanceExists`, or of all.
    """

    node: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes node and method."""
        return f"cloud asked about {self.node}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these requests."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """The time up to which the requests were collected."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the requests to the current cloud.

        Raises:
            MachineError: There is no cloud.
        """
        lab, history = hearing.lab, hearing.history
        machine, until_t = lab.fleet.machine(CLOUD), time.monotonic()
        clouds = clouds_on(machine)
        if len(clouds) != 1:
            raise MachineError(f"expected one cloud, found {len(clouds)}")
        output = machine.run(["cat", f"{CLOUD}/cloud-{clouds[0].id}.calls"], deadline_s=_LIMIT_S)
        calls, unsure = calls_of(output.stdout, history, until_t)
        words = [
            Word(call.t, f"{call.method} {call.node}")
            for call in calls
            if call.node == self.node and self.method in ("", call.method)
        ]
        moved_s = abs(wall_offset_s() - history.wall_offset_s(until_t))
        return Told(words, until_t, moved_s, [*unsure, *no_room(hearing, until_t)])


@dataclass(frozen=True)
class Call:
    """A request to a cloud at `t` (s, monotonic)."""

    t: float
    method: str
    node: str


def calls_of(text: str, history: History, until_t: float) -> tuple[Sequence[Call], Sequence[Lost]]:
    """Return each request in a file that was read at `until_t` (s), and the times of possible losses.

    A request is written before it is answered, and the provider writes a first line when it starts.
    """
    parsed_lines = [_call(line, history) for line in lines_of(text)]
    calls, recorded_span = [call for call in parsed_lines if call is not None], (history.began_t, until_t)
    if not calls or calls[0].method != STARTED:
        lost = Lost(
            history.began_t, calls[0].t if calls else until_t, "the start of the cloud's calls is missing"
        )
        return calls, [lost]
    times = [None if call is None else call.t for call in parsed_lines]
    unsure = torn(times, recorded_span, "a line of the cloud's calls is torn")
    if not text.endswith("\n") and times[-1] is not None:
        unsure += torn([times[-1], None], recorded_span, "the last line of the cloud's calls is torn")
    return calls, unsure


def _call(line: str, history: History) -> Call | None:
    """Parse a line; None if it is torn."""
    try:
        call = json.loads(line)
        return Call(history.from_wall(call["time"]), str(call["method"]), str(call.get("node", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
