"""Measurements that checks read from a recording, and the one place that makes verdicts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nodeproof.checks.evidence import Undecided, unfenced, watch_loss
from nodeproof.model.claim import Claim
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Code, Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute

Args = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """What a check measures: a recording, in the context of its windows, for a claim."""

    history: History
    context: WindowContext
    claim: Claim


@dataclass(frozen=True)
class Measurement:
    """A result that a check read from a recording, and the evidence that it needs.

    Args:
        reason: The result and its comparison with the claim.
        measured: The value.
        window: The window that it was compared with.
        finding: `holds`; `deviates`, whatever else occurred; `lacks`: too few events, a deviation if
            the recording is complete.
        code: Why complete evidence does not decide either, or an empty string.
        last_state: The last recorded state of the object.
        read: The time in which the moments were read from watches, which must not have lost events.
        exact: The times in it that a gap would make unknown, even if its events came late; by default all.
        if_lost: Reason to report if a watch lost events in `read`.
        complete: The moments of which none may have been missed.
        complete_t: The time (s) up to which `complete` must be complete.
        if_missed: Reason to report if a moment of `complete` was missed.
    """

    reason: str
    measured: Measured | None = None
    window: Window | None = None
    finding: Literal["holds", "deviates", "lacks"] = "holds"
    code: Code = ""
    last_state: str = ""
    read: Span | None = None
    exact: Sequence[Span] | None = None
    if_lost: str = ""
    complete: Sequence[Moment] = ()
    complete_t: float = 0.0
    if_missed: str = ""


def place(measurement: Measurement, history: History, involved: Sequence[Moment]) -> Verdict:
    """Return the verdict that a recording proves by a measurement of some moments.

    A loss of a watch comes first: it makes the measurement itself uncertain. A missed event cannot undo a
    deviation, but it may be what a claim lacks, or refute a result that holds.
    """
    reason, window, measured = measurement.reason, measurement.window, measurement.measured
    if measurement.read is not None:
        lost = watch_loss(history, involved, measurement.read, measurement.exact)
        if lost:
            return unproven("gap", _because(measurement.if_lost, lost), window)
    if measurement.finding != "deviates":
        missed = unfenced(history, measurement.complete, measurement.complete_t)
        if missed:
            return unproven("gap", _because(measurement.if_missed, missed), window)
    if measurement.code:
        return unproven(measurement.code, reason, window, measured)
    if measurement.finding == "holds":
        return conforms(reason, window, measured)
    return deviates(reason, window, measured, measurement.last_state)


def _because(meaning: str, doubt: str) -> str:
    return f"{meaning}: {doubt}" if meaning else doubt


def compare(holds: bool, reason: str, expected: str, measured: Measured) -> Measurement:
    """Return the measurement of a value that needs no watch."""
    if holds:
        return Measurement(reason, measured)
    return Measurement(f"{reason}, expected {expected}", measured, finding="deviates")


def window_of(spec: WindowSpec, context: WindowContext, anchor: Args) -> Window:
    """Return a window; `anchor` holds the details of the anchor's occurrence.

    Raises:
        Undecided: The window proves nothing about the claimed value.
    """
    window = compute(spec, context, anchor)
    if not window.discerning:
        raise indiscernible(spec, context, anchor)
    return window


def indiscernible(spec: WindowSpec, context: WindowContext, anchor: Args) -> Undecided:
    """Return the verdict for a window that proves nothing: because of the configuration, or of slack."""
    window = compute(spec, context, anchor)
    idle = compute(spec, WindowContext(context.configuration, 0.0), anchor)
    admitted = "is empty" if window.shape == "negative" else "also admits half or double the value"
    code: Code = "host-too-loaded" if idle.discerning else "scaled"
    return Undecided(code, f"the window {window.arithmetic} {admitted}", window)
