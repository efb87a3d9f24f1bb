"""Moments as runs tell them, in files that somebody may have edited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = Any


def read(told: Json) -> datetime | None:
    """ISO 8601, in UTC where it names no zone; None of what is no moment."""
    try:
        moment = datetime.fromisoformat(told)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
