"""What a recording vouches for: that a moment was seen, or that it did not come.

A claim starts from its anchor. Where that did not come nothing is known of the claim, and whether it should
have come is another judgment: a claim that promises its anchor judges it, too.
"""

from __future__ import annotations

from nodeproof.checks import moments, witnessed
from nodeproof.checks.blind import blind
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Verdict, unproven


def unfenced(history: History, about: Moment, until_t: float) -> str:
    """Why a moment's watches or witness may have missed something up to a time (s), or nothing."""
    for part in moments.parts(about):
        if witnessed.knows(part):
            unheard = witnessed.unheard(history, part, until_t)
            if unheard or part == about:
                return unheard
    passed = fence(history, moments.resources(about))
    if not passed.passed:
        return passed.reason
    return f"the fence stands {until_t - passed.t:.1f} s too early" if passed.t < until_t else ""


def missing(history: History, anchor: Moment) -> Verdict:
    """The anchor is missing: it did not come, or nobody knows."""
    if anchor.name == "fault-step":
        return unproven("not-injected", f"{anchor} was never proven")
    if anchor.name == "last-heartbeat":
        before = Moment.from_json(anchor.args["before"])
        if moments.find(history, before):
            return unproven(
                "gap", f"{before} came, and the recording holds no heartbeat that was the last before it"
            )
        return missing(history, before)
    recorded = Span(history.began_t, history.ended_t)
    unseen = (
        blind(history, (anchor,), recorded.since_t, recorded.until_t)
        or next(
            (why for part in moments.parts(anchor) if (why := witnessed.lost(history, part, recorded))), ""
        )
        or unfenced(history, anchor, history.began_t)
    )
    if unseen:
        return unproven("gap", f"{anchor} was not seen: {unseen}")
    return unproven("no-anchor", f"{anchor} did not come, and the claim starts from it")
