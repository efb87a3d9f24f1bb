"""Moments, observations and checks of a history, as data, so that a saved run can be judged again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from nodeproof.model.pattern import Json
from nodeproof.model.window import Duration, Stored, WindowSpec, absence, up_to


class Check(Stored):
    """A judgment by name and arguments; `nodeproof.checks` has the functions."""


class Moment(Stored):
    """An event at one time of a history, by name and arguments."""

    def after(self, anchor: Moment, window: WindowSpec | Duration) -> Check:
        """Check that the moment occurs within `window` after `anchor`; a duration is `windows.up_to`."""
        return self._timed("after", anchor, window if isinstance(window, WindowSpec) else up_to(window))

    def never_after(self, anchor: Moment, window: WindowSpec | Duration) -> Check:
        """Check that the moment does not occur within `window` after `anchor`.

        The window starts at the anchor unless it has a lower end; a duration is `windows.absence`.
        """
        return self._timed("never", anchor, window if isinstance(window, WindowSpec) else absence(window))

    def _timed(self, name: str, anchor: Moment, window: WindowSpec) -> Check:
        return Check(name, {"event": self.to_json(), "anchor": anchor.to_json(), "window": window.to_json()})

    def __str__(self) -> str:
        parts = (_format(value) for value in self.args.values())
        return f"{self.name}({', '.join(text for text in parts if text)})"


def _format(value: Json) -> str:
    if isinstance(value, list) and value:
        more = f" and {len(value) - 1} more" if len(value) > 1 else ""
        return f"{_format(value[0])}{more}"
    if not isinstance(value, Mapping):
        return str(value)
    is_moment = value.keys() == {"name", "args"}
    return str(Moment.from_json(value)) if is_moment else json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class Judgment:
    """A check and the claim that it decides."""

    claim: str
    check: Check


def words_in(namespace: Mapping[str, object], *kinds: type) -> list[str]:
    """Return the names of a module's public functions that return one of these types: words of scenarios.

    A module's `__all__` is computed from it, hidden from type checkers: these accept only a literal list, and
    without one they take all public names.
    """
    types = {kind.__name__ for kind in kinds}
    return [
        name
        for name, word in namespace.items()
        if inspect.isfunction(word)
        and word.__module__ == namespace["__name__"]
        and str(word.__annotations__.get("return")).partition("[")[0] in types
        and not name.startswith("_")
    ]


Word = TypeVar("Word")
Effect = Literal["reads", "runs-pods"]


def with_effect(effect: Effect) -> Callable[[Word], Word]:
    """Return a decorator of a word that may be used on somebody's own cluster: it has no other effect there.

    A word that `reads` uses the API, or commands that change nothing on a marked node.
    """

    def mark(word: Word) -> Word:
        setattr(word, _EFFECT, effect)
        return word

    return mark


def effect_of(word: object) -> Effect | None:
    """Return the only effect of a word, or None if it may have any."""
    effect: Effect | None = getattr(word, _EFFECT, None)
    return effect


_EFFECT = "effect"


@dataclass(frozen=True)
class Observation:
    """One `observed` entry of the recording: `what` of `subject` was `value`."""

    id: str
    what: str
    subject: str
    value: Json = field(compare=False)

    @property
    def completed(self) -> Moment:
        """The time of the result. The effects of a request may come earlier.

        For an absence after a request, use the action's `begun`.
        """
        return Moment("observed", {"id": self.id, "what": self.what, "subject": self.subject})

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a check's arguments; the value is in the history."""
        return {"id": self.id, "what": self.what, "subject": self.subject}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Observation:
        """Read a stored observation, without its value.

        Raises:
            KeyError: The data is not an observation.
        """
        return cls(data["id"], data["what"], data["subject"], None)
