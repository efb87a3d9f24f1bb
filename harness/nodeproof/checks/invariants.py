"""Invariants: what must hold at all times of a recording, whatever faults were active.

Each check reports the number of occasions at which the invariant could have been broken. Without any, it
proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nodeproof.checks import heartbeats
from nodeproof.checks.checks import measures
from nodeproof.checks.occasions import (
    FOR_EVER,
    Occasion,
    by_uid,
    controllers_down,
    measure,
    name_of,
    nodes_by_name,
    possible_pasts,
    taints_of,
    times_of,
    tolerates,
    toleration_s,
    tolerations_of,
    with_ends,
)
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import (
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    Configuration,
    condition,
    condition_status,
    has_taint,
)
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, words_in
from nodeproof.model.slack import Span

Json = Any
Args = Mapping[str, Json]
_TAINT_S = 2.0
"""Time (s) after a pass of the node lifecycle controller that its taints may take."""
_BINDING_S = 1.0
"""How long (s) a binding may be under way: the scheduler decides before it writes."""


def _silences(history: History, slack_s: float, configuration: Configuration) -> Iterator[Occasion]:
    """Yield each change to Unknown; a heartbeat that came while it was being written does not count."""
    grace_s = configuration["G"]
    for node, states in nodes_by_name(history).items():
        lost_times = [
            after.t
            for before, after in pairwise(states)
            if condition_status(before.object, "Ready") not in ("", "Unknown")
            and condition_status(after.object, "Ready") == "Unknown"
        ]
        beats = heartbeats.last_before_each(history, node, [t - slack_s for t in lost_times])
        for lost_t, beat in zip(lost_times, beats, strict=True):
            if beat is None:
                continue
            silent_s = lost_t - beat.t
            text = f"{node} became Unknown after {silent_s:.1f} s without a heartbeat (G is {grace_s:g} s)"
            yield Occasion(lost_t, text, silent_s - grace_s)


@measures("known-while-heard", times=times_of(_silences))
def known_while_heard(case: Case) -> Measurement:
    """Check that no node became Unknown before it had been silent for the grace period."""
    return measure(case, _silences, "no node became Unknown", "nodes", "leases")


def _evictions(history: History, slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each taint eviction."""
    nodes = nodes_by_name(history)
    for states in by_uid(history, "pods").values():
        deleted = next((state for state in states if "deletionTimestamp" in state.object["metadata"]), None)
        if deleted is None or deleted.listed:
            continue
        mark, node = (
            condition(deleted.object, "DisruptionTarget") or {},
            deleted.object["spec"].get("nodeName"),
        )
        if mark.get("reason") == "DeletionByTaintManager" and node in nodes:
            yield _eviction(deleted, str(node), nodes[str(node)], slack_s)


def _eviction(deleted: Version, node: str, states: Sequence[Version], slack_s: float) -> Occasion:
    """Return the occasion of a pod's eviction: taints must have been there for as long as it tolerates them.

    The watches of pods and nodes differ: of the node's states within the slack, the most favourable counts.
    """
    occasions = (_eviction_by(deleted, node, past) for past in possible_pasts(states, deleted.t, slack_s))
    return max(occasions, key=lambda occasion: occasion.margin_s)


def _eviction_by(deleted: Version, node: str, states: Sequence[Version]) -> Occasion:
    """Return the occasion if the last of these states of the node was there; a taint may replace another."""
    pod, since_t, tolerated_s = f"pod {name_of(deleted)} on {node}", deleted.t, FOR_EVER
    for state in reversed(states):
        endured_s = toleration_s(deleted.object, state.object)
        if endured_s == FOR_EVER:
            break
        since_t, tolerated_s = min(since_t, state.t), min(tolerated_s, endured_s)
    if tolerated_s == FOR_EVER:
        return Occasion(deleted.t, f"{pod} was evicted without a taint that it does not tolerate", -FOR_EVER)
    tainted_s = deleted.t - since_t
    text = f"{pod} was evicted after {tainted_s:.1f} s (tolerated for {tolerated_s:g} s)"
    return Occasion(deleted.t, text, tainted_s - tolerated_s)


@measures("evicted-when-due", times=times_of(_evictions))
def evicted_when_due(case: Case) -> Measurement:
    """Check that taint eviction only deleted pods whose toleration of a taint on their node was over."""
    return measure(case, _evictions, "no pod was evicted because of a taint", "nodes", "pods")


def _bindings(history: History, slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each binding of a pod, with how long its node had been closed to it."""
    nodes = nodes_by_name(history)
    for states in by_uid(history, "pods").values():
        for before, after in pairwise(states):
            node = after.object["spec"].get("nodeName")
            if before.object["spec"].get("nodeName") or node not in nodes:
                continue
            pasts = possible_pasts(nodes[node], after.t, slack_s)
            closed_s = min((_closed_s(after, past) for past in pasts), default=0.0)
            text = f"pod {name_of(after)} was bound to {node}, closed to it for {closed_s:.1f} s"
            yield Occasion(after.t, text, _BINDING_S - closed_s)


def _closed_s(pod: Version, states: Sequence[Version]) -> float:
    """Return for how long (s) a node had been closed to a pod when it was bound: by a taint or a cordon.

    The last of `states` is the node's at the binding.
    """
    since_t = pod.t
    for state in reversed(states):
        taints = taints_of(state.object, "NoSchedule", "NoExecute")
        if state.object["spec"].get("unschedulable"):
            taints = [*taints, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}]
        if all(any(tolerates(entry, taint) for entry in tolerations_of(pod.object)) for taint in taints):
            break
        since_t = min(since_t, state.t)
    return pod.t - since_t


@measures("bound-to-open-nodes", times=times_of(_bindings))
def bound_to_open_nodes(case: Case) -> Measurement:
    """Check that no pod was bound to a node that was cordoned or had a taint that it does not tolerate."""
    return measure(case, _bindings, "no pod was bound", "nodes", "pods")


def _condition_changes(history: History, _slack_s: float, configuration: Configuration) -> Iterator[Occasion]:
    """Yield each change of Ready that lasted, with how long the taints for it took.

    The controller writes NoSchedule taints at once, and removes NoExecute taints in its next pass. It adds
    NoExecute taints at the eviction rate, which is another claim.
    """
    allowed_s, down = configuration["P"] + _TAINT_S, controllers_down(history)
    for node, states in nodes_by_name(history).items():
        for first, lasting in _by_ready(states):
            ended_t = lasting[-1][1]
            span = Span(first.t, min(ended_t, history.ended_t))
            if span.until_t - span.since_t < allowed_s or any(
                map(Span(first.t, first.t + allowed_s).touches, down)
            ):
                continue
            right_t = next((state.t for state, _end_t in lasting if _agrees(state)), span.until_t)
            took_s, status = right_t - first.t, condition_status(first.object, "Ready")
            text = f"the taints of {node} agreed with Ready={status} after {took_s:.1f} s"
            yield Occasion(right_t, text, allowed_s - took_s, took_s)


def _by_ready(states: Sequence[Version]) -> Iterator[tuple[Version, Sequence[tuple[Version, float]]]]:
    """Yield each change of a node's Ready with the states that have its new status, and their ends (s)."""
    changed = [
        number
        for number, (before, after) in enumerate(pairwise(states), 1)
        if condition_status(before.object, "Ready") != condition_status(after.object, "Ready")
    ]
    with_end = list(with_ends(states))
    for number, following in zip(changed, [*changed[1:], len(states)], strict=False):
        yield states[number], with_end[number:following]


def _agrees(state: Version) -> bool:
    """Return whether a Node has the taints for its condition Ready."""
    key = {"True": "", "Unknown": UNREACHABLE}.get(condition_status(state.object, "Ready"), NOT_READY)
    if not key:
        return not any(
            taint["key"] in (UNREACHABLE, NOT_READY)
            for taint in taints_of(state.object, "NoSchedule", "NoExecute")
        )
    return has_taint(state.object, key, "NoSchedule")


@measures("taints-follow-ready", times=times_of(_condition_changes))
def taints_follow_ready(case: Case) -> Measurement:
    """Check that a node's taints agreed with its condition Ready soon after each lasting change of it."""
    return measure(case, _condition_changes, "no node's Ready changed for long enough", "nodes")


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
