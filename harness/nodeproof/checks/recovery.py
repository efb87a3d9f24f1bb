"""Recovery: what must hold again some time after the last fault, and from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nodeproof.checks import moments
from nodeproof.checks.checks import Times, measures
from nodeproof.checks.evidence import moments_in, require
from nodeproof.checks.occasions import FOR_EVER, by_uid, name_of, with_ends
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import Configuration, condition_status, is_ready
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
State = Callable[[History, float, Args], tuple[float, str]]
"""Returns until when (s) something was not settled after a time (s), and what still is at the end."""


def _times(state: State) -> Callable[[History, Args, Configuration], Times]:
    def times(history: History, args: Args, _configuration: Configuration) -> Times:
        (after,) = moments_in(args, "anchor")
        start = require(history, after)
        return [Span.at(start.t), Span.at(state(history, start.t, args)[0])]

    return times


def _remaining_s(state: State) -> Callable[[History, Args, WindowContext, float], float | None]:
    def remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float | None:
        (after,) = moments_in(args, "anchor")
        start, slack_limit_s = require(history, after), context.configuration.slack_limit_s
        until_t, unsettled = state(history, start.t, args)
        if not unsettled and now_t - until_t > 2 * slack_limit_s:
            return 0.0
        return start.t + compute(WindowSpec.from_json(args["window"]), context, start.detail).high_s - now_t

    return remaining_s


def _measure_recovery(
    case: Case,
    window: WindowSpec,
    after: Moment,
    text: str,
    resources: Sequence[str],
    state: State,
    args: Args,
) -> Measurement:
    """Return the measurement of when a state was reached for good after a moment."""
    history, start = case.history, require(case.history, after)
    allowed = compute(window, case.context, start.detail)
    until_t, unsettled = state(history, start.t, args)
    took_s = until_t - start.t
    evidence = Measurement(
        f"{text} {took_s:.1f} s after {after}",
        Measured(took_s, "s"),
        allowed,
        read=Span(start.t, history.ended_t),
        complete=[moments.written(resource, {}) for resource in resources],
        complete_t=until_t,
    )
    if not unsettled:
        late = f"{text} only {took_s:.1f} s after {after}"
        return evidence if took_s <= allowed.high_s else replace(evidence, reason=late, finding="deviates")
    lasted_s = history.ended_t - start.t
    if lasted_s > allowed.high_s:
        late = f"{unsettled} {lasted_s:.1f} s after {after}"
        return replace(evidence, reason=late, measured=Measured(lasted_s, "s"), finding="lacks")
    return Measurement(f"{unsettled} when the recording ended", window=allowed, code="gap")


def _unsettled(history: History, since_t: float, args: Args) -> tuple[float, str]:  # noqa: ARG001
    until_t, unsettled = since_t, ""
    for resource, describe in (("nodes", _unsettled_node), ("pods", _unsettled_pod)):
        for states in by_uid(history, resource).values():
            for state, end_t in with_ends(states):
                reason = "" if state.deleted or end_t < since_t else describe(state)
                if not reason:
                    continue
                if end_t == FOR_EVER:
                    unsettled = unsettled or reason
                else:
                    until_t = max(until_t, end_t)
    return until_t, unsettled


@measures("settled", times=_times(_unsettled), remaining_s=_remaining_s(_unsettled), after="anchor")
def settled(case: Case, window: WindowSpec, *, after: Moment) -> Measurement:
    """Check that within `window` after a moment all nodes are Ready and open, and no pod is terminating."""
    text = "all nodes were Ready and open, and no pod terminating,"
    return _measure_recovery(case, window, after, text, ("nodes", "pods"), _unsettled, {})


def _lacking(history: History, since_t: float, args: Args) -> tuple[float, str]:
    available: dict[str, set[str]] = {workload: set() for workload in args["replicas"]}
    until_t, lack = since_t, ""
    for state in history.all_versions("pods"):
        meta = state.object["metadata"]
        workload = next((name for name in available if name in (meta.get("labels") or {}).values()), None)
        if workload is None:
            continue
        is_available = not (state.deleted or "deletionTimestamp" in meta)
        if is_available and condition_status(state.object, "Ready") == "True":
            available[workload].add(meta["uid"])
        else:
            available[workload].discard(meta["uid"])
        if lack:
            until_t = max(until_t, state.t)
        lack = next(
            (
                f"{name} had {len(available[name])} of {least} pods available"
                for name, least in args["replicas"].items()
                if len(available[name]) < least
            ),
            "",
        )
    return until_t, lack


@measures("replicas-available", times=_times(_lacking), remaining_s=_remaining_s(_lacking), after="anchor")
def replicas_available(
    case: Case, window: WindowSpec, *, after: Moment, replicas: Mapping[str, int]
) -> Measurement:
    """Check that within `window` after a moment each workload has so many Ready pods."""
    text = "all replicas were available"
    return _measure_recovery(case, window, after, text, ("pods",), _lacking, {"replicas": replicas})


def _unsettled_node(state: Version) -> str:
    """Return what keeps a node from being Ready and open, or an empty string."""
    if not is_ready(state.object):
        return f"{name_of(state)} was not Ready"
    taints = state.object["spec"].get("taints") or ()
    return f"{name_of(state)} had the taint {taints[0]['key']}" if taints else ""


def _unsettled_pod(state: Version) -> str:
    is_terminating = "deletionTimestamp" in state.object["metadata"]
    return f"pod {name_of(state)} was terminating" if is_terminating else ""


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
