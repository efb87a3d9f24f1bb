"""The type of an action: a change that a scenario makes to its cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.judgment import Moment, Observation
from nodeproof.model.pattern import Json
from nodeproof.recording.recorder import Recording

T = TypeVar("T")


@dataclass(frozen=True)
class ActionContext:
    """Context of an action.

    `keep_clock` measures a node's clock, by which reports from that node are dated.
    """

    lab: LabHandle
    recording: Recording | None
    keep_clock: Callable[[str], None]

    def observed(self, what: str, subject: str, value: Json, request_t: float) -> Observation:
        """Return the answer to an action as an observation, and record it if a recording is running."""
        observation = Observation(uuid.uuid4().hex[:8], what, subject, value)
        if self.recording is not None:
            self.recording.append(
                "observed", **observation.to_json(), value=value, asked_t=round(request_t, 6)
            )
        return observation


@dataclass(frozen=True)
class Action(Generic[T]):
    """Change of the cluster, performed by `do`; a repeated change is a new action.

    `text` describes it in messages and in the recording. `affected_nodes` must be targets of the scenario.
    `do` raises ApiError, MachineError or Problem.
    """

    text: str
    do: Callable[[ActionContext], T]
    affected_nodes: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def begun(self) -> Moment:
        """The moment when the action began."""
        return Moment("action-step", {"id": self.id, "step": "begun", "text": self.text})

    @property
    def ended(self) -> Moment:
        """The moment when the action was completed."""
        return Moment("action-step", {"id": self.id, "step": "ended", "text": self.text})


def perform(action: Action[T], context: ActionContext) -> T:
    """Perform an action and record its beginning and end, if a recording is running, whatever it raises."""

    def record_step(step: str) -> None:
        if context.recording is not None:
            context.recording.append("action", time.monotonic(), id=action.id, text=action.text, step=step)

    record_step("begun")
    try:
        outcome = action.do(context)
    except BaseException:
        record_step("failed")
        raise
    record_step("ended")
    return outcome
