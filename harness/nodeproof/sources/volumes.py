"""What a cluster's CSI driver was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.faults.volumes import handle
from nodeproof.labs.ground.logs import LOOKED_EACH_S
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import ATTACHER
from nodeproof.recording.testimony import Word
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
        calls, unsure = calls_of(read.stdout, history.began_t)
        words = [
            Word(call["end"], f"{call['method']} {call['node']} {call['code']}")
            for call in calls
            if call["volume"] == handle(self.claim) and self.method in ("", call["method"])
        ]
        full = lab.life.full(since_t=history.began_t - LOOKED_EACH_S)
        return Told(words, until_t, unsure=unsure or (full[0] if full else ""))


def calls_of(text: str, began_t: float) -> tuple[Sequence[Mapping[str, Json]], str]:
    """Each call in a file of calls, and why one since `began_t` (s, monotonic) may be missing, or nothing.

    A call is written down at its end, before it is answered; one in which a driver is killed is not.
    """
    calls, unsure = [], "" if text.endswith("\n") else "the last line of the driver's calls is torn"
    for line in text.splitlines():
        try:
            told = json.loads(line)
            calls.append({name: kind(told[name]) for name, kind in _FIELDS.items()})
        except (ValueError, KeyError, TypeError):
            unsure = "a line of the driver's calls is torn"
    if not calls or calls[0]["method"] != STARTED:
        return calls, "the driver's calls lack their beginning"
    if any(call["method"] == STARTED and call["begin"] >= began_t for call in calls[1:]):
        unsure = unsure or "the driver began anew: a call in which it was ended is not written down"
    return calls, unsure
