"""A part of a run for one machine: its number, the number of shards, and the content of all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

Claims = tuple[str, ...]
_TEXT = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def parse(text: str) -> tuple[int, int]:
    """Parse a shard such as `2/4` into its number and the number of shards.

    Raises:
        Problem: The text is not a shard.
    """
    match = _TEXT.fullmatch(text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise Problem(f"{text!r} is not a shard", "--shard", "use NUMBER/TOTAL, such as --shard 2/4")
    return number, count


@dataclass(frozen=True)
class Shard:
    """One shard of a run, with the scenarios and claims of all shards.

    Each shard therefore shows what is missing. `began` is ISO 8601 in UTC, `selected` the claims selected by
    name, `overrides` the settings of the user (`Overrides.texts`).
    """

    number: int
    lab: str
    profile: str
    kubernetes_version: str
    began: str
    selected: Claims
    parts: tuple[Mapping[str, Claims], ...]
    overrides: tuple[str, ...] = ()

    @property
    def of(self) -> int:
        return len(self.parts)

    @property
    def name(self) -> str:
        return self.named(self.number)

    @property
    def began_at(self) -> datetime:
        return datetime.fromisoformat(self.began).astimezone(UTC)

    @property
    def scenarios(self) -> Mapping[str, Claims]:
        """The scenarios of this shard, with their claims."""
        return self.parts[self.number - 1]

    def named(self, number: int) -> str:
        """Return the name of another shard of the same run."""
        return f"shard {number}/{self.of}"

    @property
    def claims(self) -> Claims:
        """The claims that all shards together judge."""
        return tuple(sorted({claim for part in self.parts for claims in part.values() for claim in claims}))

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a run's folder."""
        return {
            "number": self.number,
            "of": self.of,
            "lab": self.lab,
            "profile": self.profile,
            "kubernetes_version": self.kubernetes_version,
            "began": self.began,
            "asked": list(self.selected),
            "overrides": list(self.overrides),
            "shards": [{name: list(claims) for name, claims in part.items()} for part in self.parts],
        }

    @classmethod
    def from_json(cls, data: Json) -> Shard:
        """Read a stored shard.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: The data is not a shard.
        """
        parts = tuple(
            {str(name): tuple(map(str, claims)) for name, claims in part.items()} for part in data["shards"]
        )
        lab, profile, version = (str(data[name]) for name in ("lab", "profile", "kubernetes_version"))
        selected = tuple(map(str, data["asked"]))
        overrides = tuple(map(str, data.get("overrides", ())))
        shard = cls(
            int(data["number"]), lab, profile, version, str(data["began"]), selected, parts, overrides
        )
        datetime.fromisoformat(shard.began)
        if not 1 <= shard.number <= shard.of == data["of"]:
            raise ValueError(f"shard {shard.number} of {data['of']}, but {shard.of} are listed")
        if len({name for part in parts for name in part}) < sum(map(len, parts)):
            raise ValueError("a scenario is in two shards")
        return shard
