"""Conditions of an inventory that abort a fault: URLs, commands and queries, polled while it is in."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodeproof.existing import questions
from nodeproof.existing.questions import NoAnswer

Json = Any
PERIOD_S, TIMEOUT_S = 5.0, 3.0
"""Default period of the poll, and time for an answer (s)."""
_MARGIN_S = 0.5
"""Time (s) beyond the timeout of a question, whose own message is more exact."""
_COMPANIONS = {"url": set[str](), "command": set[str](), "prometheus": {"query"}}
"""The keys that must stand beside the key of each kind of condition."""


@dataclass(frozen=True)
class Url:
    """A page whose status must be 2xx."""

    url: str

    def reason(self, _folder: Path, timeout_s: float) -> str:
        """Return an empty string. Raises NoAnswer if a fault must end."""
        questions.get(self.url, timeout_s)
        return ""

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Command:
    """A program whose exit code must be 0; it runs in the inventory's folder."""

    argv: tuple[str, ...]

    def reason(self, folder: Path, timeout_s: float) -> str:
        """Return an empty string. Raises NoAnswer if a fault must end."""
        questions.run(self.argv, folder, timeout_s)
        return ""

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True)
class Query:
    """A query whose result, a vector, must be empty, as that of an alert."""

    prometheus: str
    query: str

    def reason(self, _folder: Path, timeout_s: float) -> str:
        """Return how many series the result has, if any. Raises NoAnswer if it cannot be read."""
        url = f"{self.prometheus.rstrip('/')}/api/v1/query"
        answer = questions.get_prometheus(url, {"query": self.query}, timeout_s)
        try:
            kind, result = answer["data"]["resultType"], answer["data"]["result"]
        except (KeyError, TypeError) as error:
            raise NoAnswer("the answer is no result of a query") from error
        if kind != "vector" or not isinstance(result, list):
            raise NoAnswer(f"the result is a {kind}, not a vector")
        return f"the result is not empty: {len(result)} series" if result else ""

    def __str__(self) -> str:
        return f"{self.query} at {self.prometheus}"


Condition = Url | Command | Query


@dataclass(frozen=True)
class Abort:
    """What is polled while a fault is in, how often, and how long an answer may take (s)."""

    conditions: tuple[Condition, ...] = ()
    period_s: float = PERIOD_S
    timeout_s: float = TIMEOUT_S

    def reasons(self, folder: Path) -> list[str]:
        """Ask all conditions, and return why a fault must end; no answer is a reason, too."""
        questions_by_name: Mapping[str, Callable[[], str]] = {
            str(condition): partial(condition.reason, folder, self.timeout_s) for condition in self.conditions
        }
        return [
            f"abort condition {line}"
            for line in questions.ask_all(questions_by_name, self.timeout_s + _MARGIN_S)
        ]


def errors(content: Json) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and reason of conditions that are not of exactly one kind."""
    for number, condition in enumerate(content["conditions"]):
        place = ("conditions", number)
        kinds = _COMPANIONS.keys() & condition.keys()
        if len(kinds) != 1:
            yield place, f"expected one of the keys {', '.join(_COMPANIONS)}"
            continue
        (kind,) = kinds
        for key in sorted(_COMPANIONS[kind] - condition.keys()):
            yield place, f"expected the key {key} beside {kind}"
        for key in sorted(condition.keys() - {kind} - _COMPANIONS[kind]):
            yield (*place, key), f"{key} does not belong to {kind}"


def parse(content: Json) -> Abort:
    """Return the conditions of the valid entry `abort`, or none if there is no entry."""
    if content is None:
        return Abort()
    conditions = tuple(map(_condition, content["conditions"]))
    return Abort(conditions, content.get("period_s", PERIOD_S), content.get("timeout_s", TIMEOUT_S))


def _condition(entry: Json) -> Condition:
    if "url" in entry:
        return Url(entry["url"])
    if "command" in entry:
        return Command(tuple(entry["command"]))
    return Query(entry["prometheus"], entry["query"])
