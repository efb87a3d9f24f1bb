"""What sources tell: the words of pods that write down what happens to them (`nodeproof.cluster.witness`),
and the times in which something that was told may be lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nodeproof.model.slack import Span

Json = Any

STARTED = "started"
BEAT = "beat"
HOOK_BEGAN = "pre-stop began"
HOOK_ENDED = "pre-stop ended"
SIGTERM = "SIGTERM"
EXITS = "exits"
WROTE = "wrote"
FAILED = "failed to write"
"""Of a number that a witness was to write to its volume."""
BEAT_S = 0.2
"""How often a witness tells that it lives: as exactly is the time of its SIGKILL known."""


@dataclass(frozen=True)
class Lost:
    """A time (s, monotonic), without its ends, in which a source may have told what the recording lacks."""

    since_t: float
    until_t: float
    why: str

    def to_json(self) -> Mapping[str, Json]:
        """As an entry `heard` holds it."""
        return asdict(self)

    def touches(self, time: Span) -> bool:
        """Whether something may be lost in this time."""
        return self.since_t < time.until_t and time.since_t < self.until_t


def lost_of(unsure: Json) -> Sequence[Lost]:
    """What an entry `heard` says that its source may lack. Earlier versions said why and not when."""
    if not unsure:
        return ()
    if isinstance(unsure, str):
        return (Lost(-math.inf, math.inf, unsure),)
    return [Lost(float(lost["since_t"]), float(lost["until_t"]), str(lost["why"])) for lost in unsure]
