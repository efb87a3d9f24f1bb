"""Messages of witness pods (`nodeproof.cluster.workloads`), and times of possible message loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span

STARTED = "started"
BEAT = "beat"
HOOK_BEGAN = "pre-stop began"
HOOK_ENDED = "pre-stop ended"
SIGTERM = "SIGTERM"
EXITS = "exits"
WROTE = "wrote"
FAILED = "failed to write"
"""Prefix for a number that a witness could not write to its volume."""
BEAT_S = 0.2
"""Period of a witness's sign of life (s), which is the accuracy of the time of its SIGKILL."""


@dataclass(frozen=True)
class Lost:
    """An open interval (s, monotonic) in which messages of a source may be missing from the recording."""

    since_t: float
    until_t: float
    why: str

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a `heard` entry."""
        return asdict(self)

    def touches(self, time: Span) -> bool:
        """Return whether messages may be lost in this time."""
        return self.since_t < time.until_t and time.since_t < self.until_t


def lost_of(unsure: Json) -> Sequence[Lost]:
    """Read the possible losses in a `heard` entry; earlier versions stored the reason without the time."""
    if not unsure:
        return ()
    if isinstance(unsure, str):
        return (Lost(-math.inf, math.inf, unsure),)
    return [Lost(float(loss["since_t"]), float(loss["until_t"]), str(loss["why"])) for loss in unsure]
