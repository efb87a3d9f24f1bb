"""Requests to a cluster's CSI driver."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nodeproof.faults.volumes import handle
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import ATTACHER
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import Word, lines_of
from nodeproof.sources.loss import no_room, torn
from nodeproof.sources.source import Hearing, Told, any_word, last_heard

Json = Any
FILE = f"{ATTACHER}/calls.jsonl"
STARTED = "Started"
"""First line of each driver, as in infra/csi/calls.py."""
_LIMIT_S = 10.0
_FIELDS = {"method": str, "volume": str, "node": str, "code": str, "begin": float, "end": float}


@dataclass(frozen=True)
class VolumeCalls:
    """Finished requests about a claim's volume to the CSI driver of the fault `volumes`.

    Of one method, such as `ControllerUnpublishVolume`, or of all. Each message has method, node and code.
    """

    claim: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes claim and method."""
        return f"driver asked about {self.claim}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The end of the next of these requests."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """The time up to which the requests were collected."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the requests to the current driver.

        Raises:
            MachineError: There is no driver.
        """
        lab, history = hearing.lab, hearing.history
        machine, until_t = lab.fleet.machine(ATTACHER), time.monotonic()
        output = machine.run(["cat", FILE], deadline_s=_LIMIT_S)
        if output.status != 0:
            raise MachineError("the CSI driver has no record of calls")
        calls, unsure = calls_of(output.stdout, history.began_t, until_t)
        words = [
            Word(call["end"], f"{call['method']} {call['node']} {call['code']}")
            for call in calls
            if call["volume"] == handle(self.claim) and self.method in ("", call["method"])
        ]
        return Told(words, until_t, unsure=[*unsure, *no_room(hearing, until_t)])


def calls_of(
    text: str, began_t: float, until_t: float
) -> tuple[Sequence[Mapping[str, Json]], Sequence[Lost]]:
    """Return each request in a file that was read at `until_t`, and possible losses since `began_t`.

    Both times are in s, monotonic. A request is written at its end, before it is answered; one that is cut
    off by a kill of the driver is not written.
    """
    parsed_lines = [_call(line) for line in lines_of(text)]
    calls, recorded_span = [call for call in parsed_lines if call is not None], (began_t, until_t)
    if not calls or calls[0]["method"] != STARTED:
        first_t = calls[0]["end"] if calls else until_t
        return calls, [Lost(began_t, first_t, "the start of the driver's calls is missing")]
    times = [None if call is None else call["end"] for call in parsed_lines]
    unsure = torn(times, recorded_span, "a line of the driver's calls is torn")
    if not text.endswith("\n") and times[-1] is not None:
        unsure += torn([times[-1], None], recorded_span, "the last line of the driver's calls is torn")
    why = "the driver restarted: a call that was interrupted is not recorded"
    for before, call in pairwise(calls):
        if call["method"] == STARTED and call["begin"] >= began_t:
            unsure.append(Lost(before["end"], call["begin"], why))
    return calls, unsure


def _call(line: str) -> Mapping[str, Json] | None:
    """Parse a line; None if it is torn."""
    try:
        call = json.loads(line)
        return {name: kind(call[name]) for name, kind in _FIELDS.items()}
    except (ValueError, KeyError, TypeError):
        return None
