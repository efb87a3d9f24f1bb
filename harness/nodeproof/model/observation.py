"""What was looked at or answered once: named, so that a judgment can say which one it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeproof.model.judgment import Moment

Json = Any


@dataclass(frozen=True)
class Observation:
    """One `observed` entry of the recording: `what` of `subject` was `value`; `id` is its own."""

    id: str
    what: str
    subject: str
    value: Json = field(compare=False)

    @property
    def came(self) -> Moment:
        """When it was known: what a request did may have come before. For what must not follow it, take the
        action's `begun`.
        """
        return Moment("observed", {"id": self.id, "what": self.what, "subject": self.subject})

    def to_json(self) -> Mapping[str, Json]:
        """As stored in a check's arguments: what it showed is in the history."""
        return {"id": self.id, "what": self.what, "subject": self.subject}
