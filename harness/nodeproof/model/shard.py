"""A part of a run that another machine may run: which of how many it is, and what is in all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeproof.model.problem import Problem

Json = Any
Claims = tuple[str, ...]
_TEXT = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def parse(text: str) -> tuple[int, int]:
    """Which of how many: `2/4`. Raises Problem on another text."""
    found = _TEXT.fullmatch(text)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise Problem(f"{text!r} is no shard", "--shard", "say which of how many, as in --shard 2/4")
    return number, of


@dataclass(frozen=True)
class Shard:
    """One shard of a run. Each knows the scenarios of all, with the claims of each, so that whoever has one
    knows what is missing.

    `began` is ISO 8601 in UTC, `asked` are the claims that were asked for by name.
    """

    number: int
    lab: str
    profile: str
    kubernetes_version: str
    began: str
    asked: Claims
    parts: tuple[Mapping[str, Claims], ...]

    @property
    def of(self) -> int:
        """How many there are."""
        return len(self.parts)

    @property
    def name(self) -> str:
        """For people."""
        return self.named(self.number)

    def named(self, number: int) -> str:
        """Another one of the same run, for people."""
        return f"shard {number}/{self.of}"

    @property
    def claims(self) -> Claims:
        """The claims that all shards together are to judge."""
        return tuple(sorted({claim for part in self.parts for told in part.values() for claim in told}))

    def to_json(self) -> Mapping[str, Json]:
        """As it is kept in a run's folder."""
        return {
            "number": self.number,
            "of": self.of,
            "lab": self.lab,
            "profile": self.profile,
            "kubernetes_version": self.kubernetes_version,
            "began": self.began,
            "asked": list(self.asked),
            "shards": [{name: list(claims) for name, claims in part.items()} for part in self.parts],
        }

    @classmethod
    def from_json(cls, data: Json) -> Shard:
        """Raises KeyError, TypeError, ValueError, AttributeError on what is no shard."""
        parts = tuple(
            {str(name): tuple(map(str, claims)) for name, claims in part.items()} for part in data["shards"]
        )
        lab, profile, version = (str(data[name]) for name in ("lab", "profile", "kubernetes_version"))
        asked = tuple(map(str, data["asked"]))
        made = cls(int(data["number"]), lab, profile, version, str(data["began"]), asked, parts)
        if not 1 <= made.number <= made.of == data["of"]:
            raise ValueError(f"shard {made.number} of {data['of']}, and {made.of} are listed")
        if len({name for part in parts for name in part}) < sum(map(len, parts)):
            raise ValueError("a scenario is in two shards")
        return made
