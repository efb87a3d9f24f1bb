"""Moments, observations and checks of a history, as data, so that a saved run can be judged again."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from nodeproof.model.pattern import Json
from nodeproof.model.window import Duration, Stored, WindowSpec, absence, up_to

Result = TypeVar("Result")


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


Effect = Literal["reads", "runs-pods"]


def with_effect(effect: Effect) -> Callable[[Result], Result]:
    """Return a decorator of a word that may be used on somebody's own cluster: it has no other effect there.

    A word that `reads` uses the API, or commands that change nothing on a marked node.
    """

    def mark(word: Result) -> Result:
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


_STORED = {kind.__name__: kind.from_json for kind in (Moment, Observation, WindowSpec)}
"""How to read a stored argument, by the annotation of its parameter."""


@dataclass(frozen=True)
class Word(Generic[Result]):
    """A word of scenarios that recorded runs store by name and arguments: a moment or a check.

    It is one function, with the parameters that are stored, and each one's key in recorded runs. Its
    constructor for scenarios stores the arguments, and the current code calls the function with the stored
    ones.
    """

    name: str
    function: Callable[..., Result]
    signature: inspect.Signature
    keys: Mapping[str, str]

    @classmethod
    def of(
        cls, name: str, function: Callable[..., Result], keys: Mapping[str, str], first: int = 0
    ) -> Word[Result]:
        """Return the word of a function whose stored parameters begin with number `first`."""
        parameters = [*inspect.signature(function).parameters.values()][first:]
        names = [parameter.name for parameter in parameters]
        if "namespace" in names:
            # Moments are printed in the order of their arguments, such as `made(pods, default, web)`.
            names.remove("namespace")
            names.insert(names.index("name"), "namespace")
        return cls(name, function, inspect.Signature(parameters), {key: keys.get(key, key) for key in names})

    def constructor(
        self, kind: type[Moment] | type[Check], refuse: Callable[..., str] | None = None
    ) -> Callable[..., Any]:
        """Return the function that makes a moment or check of arguments, unless `refuse` says why not."""

        @functools.wraps(self.function)
        def constructor(*args: Json, **arguments: Json) -> Moment | Check:
            bound = self.signature.bind(*args, **arguments)
            bound.apply_defaults()
            reason = refuse(**bound.arguments) if refuse else ""
            if reason:
                raise ValueError(reason)
            return kind(self.name, self._stored(bound.arguments))

        constructor.__annotations__ = {**self.function.__annotations__, "return": kind.__name__}
        constructor.__signature__ = self.signature  # type: ignore[attr-defined]
        return constructor

    def _stored(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the arguments as they are stored; one that is None, its default, is left out."""
        defaults = {name: parameter.default for name, parameter in self.signature.parameters.items()}
        return {
            key: _to_json(arguments[name])
            for name, key in self.keys.items()
            if arguments[name] is not None or defaults[name] is not None
        }

    def call(self, stored: Mapping[str, Json], *first: object) -> Result:
        """Call the function with `first`, then stored arguments; keys without a parameter are ignored."""
        args: list[Json] = []
        arguments: dict[str, Json] = {}
        for name, parameter in self.signature.parameters.items():
            if self.keys[name] not in stored:
                continue
            argument, read = stored[self.keys[name]], _STORED.get(str(parameter.annotation), _as_stored)
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += map(read, argument)
            else:
                arguments[name] = read(argument)
        return self.function(*first, *args, **arguments)


def _as_stored(argument: Json) -> Json:
    return argument


def _to_json(argument: Json) -> Json:
    if isinstance(argument, tuple):
        return [_to_json(part) for part in argument]
    return argument.to_json() if isinstance(argument, Moment | Observation | WindowSpec) else argument
