"""Evidence for anchors: whether a moment was recorded, or is known not to have occurred.

A claim starts from its anchor. Without the anchor the claim is undecided. Whether the anchor should have
occurred is another judgment, which a claim that promises its anchor must make as well.
"""

from __future__ import annotations

from nodeproof.checks import moments, witnessed
from nodeproof.checks.blind import blind
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Verdict, unproven


def unfenced(history: History, moment: Moment, until_t: float) -> str:
    """Return why a moment may have been missed by its watches or witness up to a time (s).

    The result is an empty string if nothing was missed.
    """
    for part in moments.parts(moment):
        if witnessed.knows(part):
            doubt = witnessed.unheard(history, part, until_t)
            if doubt or part == moment:
                return doubt
    last_fence = fence(history, moments.resources(moment))
    if not last_fence.passed:
        return last_fence.reason
    return f"the fence is {until_t - last_fence.t:.1f} s too early" if last_fence.t < until_t else ""


def missing(history: History, anchor: Moment) -> Verdict:
    """Return the verdict for a missing anchor: it did not occur, or it may not have been recorded."""
    if anchor.name == "fault-step":
        return unproven("not-injected", f"{anchor} was not proven")
    if anchor.name == "last-heartbeat":
        before = Moment.from_json(anchor.args["before"])
        if moments.find(history, before):
            return unproven("gap", f"{before} occurred, but the last heartbeat before it was not recorded")
        return missing(history, before)
    recorded = Span(history.began_t, history.ended_t)
    doubt = (
        blind(history, (anchor,), recorded.since_t, recorded.until_t)
        or next(
            (loss for part in moments.parts(anchor) if (loss := witnessed.lost(history, part, recorded))), ""
        )
        or unfenced(history, anchor, history.began_t)
    )
    if doubt:
        return unproven("gap", f"{anchor} was not recorded: {doubt}")
    return unproven("no-anchor", f"the anchor {anchor} did not occur")
