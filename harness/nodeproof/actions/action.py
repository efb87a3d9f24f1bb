"""What an action is: something that a scenario does to its cluster, and what it gets for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nodeproof.labs.client.lab import Lab
from nodeproof.model.judgment import Moment
from nodeproof.model.observation import Observation
from nodeproof.recording.recorder import Recording

Json = Any
Got = TypeVar("Got")


@dataclass(frozen=True)
class Doing:
    """What an action works with; `keep_clock` measures a node's clock: what is told there is read by it."""

    lab: Lab
    recording: Recording | None
    keep_clock: Callable[[str], None]

    def observed(self, what: str, subject: str, value: Json, asked_t: float) -> Observation:
        """Write down what an action was answered, if somebody records; gives it a name."""
        seen = Observation(uuid.uuid4().hex[:8], what, subject, value)
        if self.recording is not None:
            self.recording.append("observed", **seen.to_json(), value=value, asked_t=round(asked_t, 6))
        return seen


@dataclass(frozen=True)
class Action(Generic[Got]):
    """`text` is for people and for the recording; `harms` are the nodes that it harms, which have to be
    targets. `do` raises ApiError, MachineError, Problem. What is done twice is two actions.
    """

    text: str
    do: Callable[[Doing], Got]
    harms: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def begun(self) -> Moment:
        """When it began."""
        return Moment("action-step", {"id": self.id, "step": "begun", "text": self.text})

    @property
    def ended(self) -> Moment:
        """When it was done."""
        return Moment("action-step", {"id": self.id, "step": "ended", "text": self.text})


def perform(action: Action[Got], doing: Doing) -> Got:
    """Do it; where it is recorded, so are its beginning and its end, whatever it raises."""

    def note(step: str) -> None:
        if doing.recording is not None:
            doing.recording.append("action", time.monotonic(), id=action.id, text=action.text, step=step)

    note("begun")
    try:
        got = action.do(doing)
    except BaseException:
        note("failed")
        raise
    note("ended")
    return got
