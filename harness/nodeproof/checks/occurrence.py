"""What a moment's finder gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Args = Mapping[str, Any]


@dataclass(frozen=True)
class Occurrence:
    """When a moment was, and what it tells of itself (windows may depend on it)."""

    t: float
    detail: Args = field(default_factory=dict)
