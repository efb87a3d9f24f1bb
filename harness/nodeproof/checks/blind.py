"""Gaps in the watches from which moments are read."""

from __future__ import annotations

from collections.abc import Iterable

from nodeproof.checks import moments
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment


def blind(history: History, involved: Iterable[Moment], from_t: float, to_t: float) -> str:
    """Return which watch of these moments had a gap between two times (s), or an empty string."""
    since_t, until_t = sorted((from_t, to_t))
    for resource in sorted({name for moment in involved for name in moments.resources(moment)}):
        gap = history.gap(resource, since_t, until_t)
        if gap is not None:
            gap_s = gap.t - gap.data["since"]
            return f"the watch of {resource} had a gap of {gap_s:.1f} s: {gap.data['reason']}"
    return ""
