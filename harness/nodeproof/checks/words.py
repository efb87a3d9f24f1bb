"""Words of scenarios that recorded runs store by name and arguments: moments and checks.

A word is one function. Its constructor for scenarios stores the arguments, and the current code calls the
function with the stored ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nodeproof.model.judgment import Check, Moment, Observation
from nodeproof.model.pattern import Json
from nodeproof.model.window import WindowSpec

Args = Mapping[str, Any]
T = TypeVar("T")
_STORED = {kind.__name__: kind.from_json for kind in (Moment, Observation, WindowSpec)}
"""How to read a stored argument, by the annotation of its parameter."""


@dataclass(frozen=True)
class Word(Generic[T]):
    """A function with the parameters that are stored, and each one's key in recorded runs."""

    name: str
    function: Callable[..., T]
    signature: inspect.Signature
    keys: Mapping[str, str]

    @classmethod
    def of(cls, name: str, function: Callable[..., T], keys: Mapping[str, str], first: int = 0) -> Word[T]:
        """Return the word of a function whose stored parameters begin with number `first`."""
        parameters = [*inspect.signature(function).parameters.values()][first:]
        names = [parameter.name for parameter in parameters]
        if "namespace" in names:
            # Moments are printed in the order of their arguments, such as `made(pods, default, web)`.
            names.remove("namespace")
            names.insert(names.index("name"), "namespace")
        return cls(name, function, inspect.Signature(parameters), {key: keys.get(key, key) for key in names})

    def constructor(self, kind: type[Moment] | type[Check]) -> Callable[..., Any]:
        """Return the function that makes a moment or check of arguments."""

        @functools.wraps(self.function)
        def constructor(*args: Json, **arguments: Json) -> Moment | Check:
            return kind(self.name, self._stored(*args, **arguments))

        constructor.__annotations__ = {**self.function.__annotations__, "return": kind.__name__}
        constructor.__signature__ = self.signature  # type: ignore[attr-defined]
        return constructor

    def _stored(self, *args: Json, **arguments: Json) -> Args:
        """Return the arguments as they are stored; one that is None, its default, is left out."""
        bound = self.signature.bind(*args, **arguments)
        bound.apply_defaults()
        defaults = {name: parameter.default for name, parameter in self.signature.parameters.items()}
        return {
            key: _to_json(bound.arguments[name])
            for name, key in self.keys.items()
            if bound.arguments[name] is not None or defaults[name] is not None
        }

    def call(self, stored: Args, *first: object) -> T:
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
