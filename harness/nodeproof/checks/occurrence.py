"""The result of a search for a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Args = Mapping[str, Any]


@dataclass(frozen=True)
class Occurrence:
    """The time of a moment (s), with details and the etcd revision.

    Windows may depend on the details. Only a single change of one object has a revision.
    """

    t: float
    detail: Args = field(default_factory=dict)
    revision: int = field(default=0, compare=False)
