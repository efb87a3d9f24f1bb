"""What is asked of a history: moments and checks, as data, so that a saved run can be asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeproof.model.window import WindowSpec

Json = Any


@dataclass(frozen=True)
class Check:
    """A judgment by name and arguments; `nodeproof.checks` holds the functions."""

    name: str
    args: Mapping[str, Json]

    def to_json(self) -> Mapping[str, Json]:
        """As stored in `judgments.json`."""
        return {"name": self.name, "args": dict(self.args)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Check:
        """Read a stored check. Raises KeyError when it is not one."""
        return cls(data["name"], data["args"])


@dataclass(frozen=True)
class Moment:
    """Something that happens at one time in a history, by name and arguments."""

    name: str
    args: Mapping[str, Json]

    def after(self, anchor: Moment, window: WindowSpec) -> Check:
        """It comes inside `window` after `anchor`."""
        return self._timed("after", anchor, window)

    def never_after(self, anchor: Moment, window: WindowSpec) -> Check:
        """It does not come inside `window` after `anchor`, which begins there unless it has a lower end."""
        return self._timed("never", anchor, window)

    def _timed(self, name: str, anchor: Moment, window: WindowSpec) -> Check:
        return Check(name, {"event": self.to_json(), "anchor": anchor.to_json(), "window": window.to_json()})

    def to_json(self) -> Mapping[str, Json]:
        """As stored inside a check."""
        return {"name": self.name, "args": dict(self.args)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Moment:
        """Read a stored moment. Raises KeyError when it is not one."""
        return cls(data["name"], data["args"])

    def __str__(self) -> str:
        said = (_said(value) for value in self.args.values())
        return f"{self.name}({', '.join(text for text in said if text)})"


def _said(value: Json) -> str:
    if isinstance(value, list) and value:
        more = f" and {len(value) - 1} more" if len(value) > 1 else ""
        return f"{_said(value[0])}{more}"
    if not isinstance(value, Mapping):
        return str(value)
    is_moment = value.keys() == {"name", "args"}
    return str(Moment.from_json(value)) if is_moment else json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class Judgment:
    """A check and the claim that it decides."""

    claim: str
    check: Check
