"""Invariants of pods: what must hold of them at all times of a recording, whatever faults were active."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nodeproof.checks.checks import measures
from nodeproof.checks.occasions import (
    FOR_EVER,
    Occasion,
    by_uid,
    controllers_down,
    cut_off_spans,
    measure,
    name_of,
    nodes_by_name,
    taints_of,
    times_of,
    toleration_s,
    with_ends,
    without,
)
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, words_in
from nodeproof.model.slack import Span

Json = Any
_EVICTION_S = 2.0
"""Time (s) that a due eviction may take: two watches, two requests."""
_UNDER_WAY_S = 1.0
"""How long (s) a request that the kubelet sent before a fault may be under way."""
_FINISHED = ("Succeeded", "Failed")


def _late_evictions(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each time that a pod's toleration of its node's taints was over, with the controller running."""
    nodes, down = nodes_by_name(history), controllers_down(history)
    tainted = {node: list(_tainted(states, history.ended_t)) for node, states in nodes.items()}
    for states in by_uid(history, "pods").values():
        bound = next((state for state in states if state.object["spec"].get("nodeName")), None)
        if bound is None or _is_terminating(bound):
            continue
        node = str(bound.object["spec"]["nodeName"])
        ended_t = next((state.t for state in states if _is_terminating(state)), history.ended_t)
        for state, span in tainted.get(node, ()):
            tolerated_s = toleration_s(bound.object, state.object)
            stayed = Span(max(span.since_t, bound.t), min(span.until_t, ended_t))
            for part in without(stayed, down) if tolerated_s < FOR_EVER else ():
                late_s = part.until_t - part.since_t - tolerated_s
                if late_s < 0:
                    continue
                text = (
                    f"pod {name_of(bound)} was on {node} for {late_s:.1f} s after its toleration of "
                    f"{tolerated_s:g} s"
                )
                yield Occasion(part.until_t, text, _EVICTION_S - late_s, part.until_t - part.since_t)


def _tainted(states: Sequence[Version], ended_t: float) -> Iterator[tuple[Version, Span]]:
    """Yield each set of NoExecute taints of a node by its first state, and how long the node had it (s)."""
    first = states[0]
    for state in states[1:]:
        if state.deleted or _no_execute(state) != _no_execute(first):
            yield first, Span(first.t, state.t)
            first = state
    if not first.deleted:
        yield first, Span(first.t, ended_t)


def _no_execute(state: Version) -> Json:
    return sorted((taint["key"], taint.get("value", "")) for taint in taints_of(state.object, "NoExecute"))


def _is_terminating(state: Version) -> bool:
    return state.deleted or "deletionTimestamp" in state.object["metadata"]


@measures("evicted-in-time", times=times_of(_late_evictions))
def evicted_in_time(case: Case) -> Measurement:
    """Check that every pod was evicted once its toleration of its node's taints was over."""
    return measure(case, _late_evictions, "no toleration was over", "nodes", "pods")


def _confirmations(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each time that the kubelet of a terminating pod was cut off, with when the pod was gone.

    A pod that had finished needs no kubelet.
    """
    cut_off = {node: cut_off_spans(history, node) for node in nodes_by_name(history)}
    for states in by_uid(history, "pods").values():
        node = str(states[-1].object["spec"].get("nodeName") or "")
        for span in cut_off.get(node, ()):
            since_t, until_t = span.since_t, min(span.until_t, history.ended_t)
            before = [state for state in states if state.t <= since_t]
            if before and (_is_gone(before[-1]) or before[-1].object["status"].get("phase") in _FINISHED):
                continue
            if not any(
                _is_terminating(state) and end_t > since_t and state.t < until_t
                for state, end_t in with_ends(states)
            ):
                continue
            gone = [state for state in states if since_t < state.t < until_t and _is_gone(state)]
            pod = f"pod {name_of(states[-1])} of {node}, cut off {until_t - since_t:.1f} s,"
            if not gone:
                yield Occasion(until_t, f"{pod} stayed", FOR_EVER, until_t - since_t)
            else:
                took_s = gone[0].t - since_t
                yield Occasion(gone[0].t, f"{pod} was removed after {took_s:.1f} s", _UNDER_WAY_S - took_s)


def _is_gone(state: Version) -> bool:
    """Return whether a pod is removed, or only waits for finalizers: its grace period was set to zero."""
    return state.deleted or state.object["metadata"].get("deletionGracePeriodSeconds") == 0


@measures("removed-by-kubelet", times=times_of(_confirmations))
def removed_by_kubelet(case: Case) -> Measurement:
    """Check that no terminating pod was removed while its kubelet could not confirm that it ended."""
    return measure(case, _confirmations, "no pod of a lost node was terminating", "pods")


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
