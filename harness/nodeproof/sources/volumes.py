"""What a cluster's CSI driver was asked."""

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
"""As in infra/csi/calls.py: the first line of each driver."""
_LIMIT_S = 10.0
_FIELDS = {"method": str, "volume": str, "node": str, "code": str, "begin": float, "end": float}


@dataclass(frozen=True)
class VolumeCalls:
    """What the CSI driver of the fault `volumes` was asked about a claim's volume: of one method, such as
    `ControllerUnpublishVolume`, or of each, told when it was done. Each says method, node and code.
    """

    claim: str
    method: str = ""

    @property
    def by(self) -> str:
        """Claim and method are part of it."""
        return f"driver asked about {self.claim}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these calls, at its end."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """Up to when it was heard."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the calls of the driver that there is now. Raises MachineError where there is none."""
        lab, history = hearing.lab, hearing.history
        machine, until_t = lab.fleet.machine(ATTACHER), time.monotonic()
        read = machine.run(["cat", FILE], deadline_s=_LIMIT_S)
        if read.status != 0:
            raise MachineError("no volumes to be heard")
        calls, unsure = calls_of(read.stdout, history.began_t, until_t)
        words = [
            Word(call["end"], f"{call['method']} {call['node']} {call['code']}")
            for call in calls
            if call["volume"] == handle(self.claim) and self.method in ("", call["method"])
        ]
        return Told(words, until_t, unsure=[*unsure, *no_room(hearing, until_t)])


def calls_of(
    text: str, began_t: float, until_t: float
) -> tuple[Sequence[Mapping[str, Json]], Sequence[Lost]]:
    """Each call in a file of calls that was read at `until_t`, and where one since `began_t` may be missing
    (both s, monotonic).

    A call is written down at its end, before it is answered; one in which a driver is killed is not.
    """
    read = [_call(line) for line in lines_of(text)]
    calls, told_in = [call for call in read if call is not None], (began_t, until_t)
    if not calls or calls[0]["method"] != STARTED:
        first_t = calls[0]["end"] if calls else until_t
        return calls, [Lost(began_t, first_t, "the driver's calls lack their beginning")]
    times = [None if call is None else call["end"] for call in read]
    unsure = torn(times, told_in, "a line of the driver's calls is torn")
    if not text.endswith("\n") and times[-1] is not None:
        unsure += torn([times[-1], None], told_in, "the last line of the driver's calls is torn")
    why = "the driver began anew: a call in which it was ended is not written down"
    for before, call in pairwise(calls):
        if call["method"] == STARTED and call["begin"] >= began_t:
            unsure.append(Lost(before["end"], call["begin"], why))
    return calls, unsure


def _call(line: str) -> Mapping[str, Json] | None:
    """What a line says; None of one that is torn."""
    try:
        told = json.loads(line)
        return {name: kind(told[name]) for name, kind in _FIELDS.items()}
    except (ValueError, KeyError, TypeError):
        return None
