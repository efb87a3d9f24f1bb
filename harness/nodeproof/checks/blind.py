"""Whether what a moment is read from could be seen at the time."""

from __future__ import annotations

from collections.abc import Iterable

from nodeproof.checks import moments
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment


def blind(history: History, about: Iterable[Moment], one_t: float, other_t: float) -> str:
    """Say which watch of these moments was blind between two times (s), or nothing."""
    since_t, until_t = sorted((one_t, other_t))
    for resource in sorted({name for moment in about for name in moments.resources(moment)}):
        gap = history.gap(resource, since_t, until_t)
        if gap is not None:
            blind_s = gap.t - gap.data["since"]
            return f"the watch of {resource} was blind for {blind_s:.1f} s: {gap.data['reason']}"
    return ""
