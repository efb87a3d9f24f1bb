"""What a moment's finder gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Args = Mapping[str, Any]


@dataclass(frozen=True)
class Occurrence:
    """When a moment was, what it tells of itself (windows may depend on it), and with which revision etcd
    took it, where it is one change of one object.
    """

    t: float
    detail: Args = field(default_factory=dict)
    revision: int = field(default=0, compare=False)
