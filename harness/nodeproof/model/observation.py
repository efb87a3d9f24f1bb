"""Single observations, with an id so that a judgment can refer to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeproof.model.judgment import Moment

Json = Any


@dataclass(frozen=True)
class Observation:
    """One `observed` entry of the recording: `what` of `subject` was `value`."""

    id: str
    what: str
    subject: str
    value: Json = field(compare=False)

    @property
    def came(self) -> Moment:
        """The time of the result. The effects of a request may come earlier.

        For an absence after a request, use the action's `begun`.
        """
        return Moment("observed", {"id": self.id, "what": self.what, "subject": self.subject})

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a check's arguments; the value is in the history."""
        return {"id": self.id, "what": self.what, "subject": self.subject}
