"""What a moment's finder gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.history import History

Args = Mapping[str, Any]


@dataclass(frozen=True)
class Occurrence:
    """When a moment was, and what it tells of itself (windows may depend on it)."""

    t: float
    detail: Args = field(default_factory=dict)


Finder = Callable[[History, Args, float], Occurrence | None]
