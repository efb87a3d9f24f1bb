"""The type of an action: a change that a scenario makes to its cluster."""

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
    """Context of an action.

    `keep_clock` measures a node's clock, by which reports from that node are dated.
    """

    lab: Lab
    recording: Recording | None
    keep_clock: Callable[[str], None]

    def observed(self, what: str, subject: str, value: Json, asked_t: float) -> Observation:
        """Return the answer to an action as an observation, and record it if a recording is running."""
        observation = Observation(uuid.uuid4().hex[:8], what, subject, value)
        if self.recording is not None:
            self.recording.append("observed", **observation.to_json(), value=value, asked_t=round(asked_t, 6))
        return observation


@dataclass(frozen=True)
class Action(Generic[Got]):
    """Change of the cluster, performed by `do`; a repeated change is a new action.

    `text` is for people and for the recording. `harms` are the nodes that it affects, which must be targets.
    `do` raises ApiError, MachineError or Problem.
    """

    text: str
    do: Callable[[Doing], Got]
    harms: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def begun(self) -> Moment:
        """The moment when the action began."""
        return Moment("action-step", {"id": self.id, "step": "begun", "text": self.text})

    @property
    def ended(self) -> Moment:
        """The moment when the action was completed."""
        return Moment("action-step", {"id": self.id, "step": "ended", "text": self.text})


def perform(action: Action[Got], doing: Doing) -> Got:
    """Perform an action and record its beginning and end, if a recording is running, whatever it raises."""

    def record_step(step: str) -> None:
        if doing.recording is not None:
            doing.recording.append("action", time.monotonic(), id=action.id, text=action.text, step=step)

    record_step("begun")
    try:
        outcome = action.do(doing)
    except BaseException:
        record_step("failed")
        raise
    record_step("ended")
    return outcome
