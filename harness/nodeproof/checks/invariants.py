"""Invariants: what must hold at all times of a recording, whatever faults were active.

Each check reports the number of occasions at which the invariant could have been broken. Without any, it
proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import Times, measures
from nodeproof.checks.evidence import moments_in, require
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import (
    UNSCHEDULABLE,
    Configuration,
    condition,
    condition_status,
    is_ready,
)
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
_BINDING_S = 1.0
"""How long (s) a binding may be under way: the scheduler decides before it writes."""
_FOR_EVER = float("inf")


@dataclass(frozen=True)
class Occasion:
    """A time (s) at which an invariant could have been broken.

    Args:
        t: when.
        text: what occurred.
        margin_s: how much earlier, or longer, it would have to be to break the invariant (s); negative if it
            did.
    """

    t: float
    text: str
    margin_s: float


Find = Callable[[History, float, Configuration], Iterator[Occasion]]
"""Returns the occasions of a recording with this slack (s)."""


def _times(find: Find) -> Callable[[History, Args, Configuration], Times]:
    """Return the function that gives the times of the occasions: only their slack counts."""
    return lambda history, _args, configuration: [
        Span.at(occasion.t) for occasion in find(history, 0.0, configuration)
    ]


def _measure(case: Case, find: Find, premise: str, *resources: str) -> Measurement:
    """Return the measurement of an invariant by the occasion that came closest to breaking it."""
    history, slack_s = case.history, case.context.slack_s
    occasions = list(find(history, slack_s, case.context.configuration))
    if not occasions:
        return Measurement(f"not met: {premise}", code="no-anchor")
    closest = min(occasions, key=lambda occasion: occasion.margin_s)
    measured, read = Measured(float(len(occasions)), "occasions"), Span(history.began_t, history.ended_t)
    if closest.margin_s < -slack_s:
        reason = f"{closest.t - history.began_t:.1f} s after the recording began, {closest.text}"
        return Measurement(reason, measured, finding="deviates", read=Span.at(closest.t))
    return Measurement(
        f"held on {len(occasions)} occasions; closest: {closest.text}",
        measured,
        read=read,
        complete=[moments.written(resource, {}) for resource in resources],
        complete_t=max(occasion.t for occasion in occasions),
        if_missed="there may have been more occasions",
    )


def _by_uid(history: History, resource: str) -> Mapping[str, Sequence[Version]]:
    """Return the states of each object of a resource, in the order of receipt."""
    states: dict[str, list[Version]] = {}
    for version in history.all_versions(resource):
        states.setdefault(str(version.object["metadata"]["uid"]), []).append(version)
    return states


def _nodes(history: History) -> Mapping[str, Sequence[Version]]:
    """Return the states of the Nodes by name; a Node may have been created again."""
    states: dict[str, list[Version]] = {}
    for version in history.all_versions("nodes"):
        states.setdefault(_name(version), []).append(version)
    return states


def _name(version: Version) -> str:
    return str(version.object["metadata"]["name"])


def _silences(history: History, slack_s: float, configuration: Configuration) -> Iterator[Occasion]:
    """Yield each change to Unknown; a heartbeat that came while it was being written does not count."""
    grace_s = configuration["G"]
    for node, states in _nodes(history).items():
        for before, after in pairwise(states):
            statuses = [condition_status(state.object, "Ready") for state in (before, after)]
            if statuses[0] in ("", "Unknown") or statuses[1] != "Unknown":
                continue
            beat = heartbeats.last_before(history, node, after.t - slack_s)
            if beat is not None:
                silent_s = after.t - beat.t
                text = (
                    f"{node} became Unknown after {silent_s:.1f} s without a heartbeat (G is {grace_s:g} s)"
                )
                yield Occasion(after.t, text, silent_s - grace_s)


@measures("known-while-heard", times=_times(_silences))
def known_while_heard(case: Case) -> Measurement:
    """Check that no node became Unknown before it had been silent for the grace period."""
    return _measure(case, _silences, "no node became Unknown", "nodes", "leases")


def _evictions(history: History, slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each taint eviction."""
    nodes = _nodes(history)
    for states in _by_uid(history, "pods").values():
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
    possible = [
        number
        for number, (state, until_t) in enumerate(_with_ends(states))
        if state.t <= deleted.t + slack_s and until_t >= deleted.t - slack_s
    ]
    occasions = (_eviction_by(deleted, node, states[: number + 1]) for number in possible)
    return max(occasions, key=lambda occasion: occasion.margin_s)


def _eviction_by(deleted: Version, node: str, states: Sequence[Version]) -> Occasion:
    """Return the occasion if the last of these states of the node was there; a taint may replace another."""
    pod, since_t, tolerated_s = f"pod {_name(deleted)} on {node}", deleted.t, _FOR_EVER
    for state in reversed(states):
        endured_s = _toleration_s(deleted.object, state.object)
        if endured_s == _FOR_EVER:
            break
        since_t, tolerated_s = min(since_t, state.t), min(tolerated_s, endured_s)
    if tolerated_s == _FOR_EVER:
        return Occasion(deleted.t, f"{pod} was evicted without a taint that it does not tolerate", -_FOR_EVER)
    tainted_s = deleted.t - since_t
    text = f"{pod} was evicted after {tainted_s:.1f} s (tolerated for {tolerated_s:g} s)"
    return Occasion(deleted.t, text, tainted_s - tolerated_s)


@measures("evicted-when-due", times=_times(_evictions))
def evicted_when_due(case: Case) -> Measurement:
    """Check that taint eviction only deleted pods whose toleration of a taint on their node was over."""
    return _measure(case, _evictions, "no pod was evicted because of a taint", "nodes", "pods")


def _toleration_s(pod: Json, node: Json) -> float:
    """Return for how long (s) a pod tolerates a Node's NoExecute taints (pkg/controller/tainteviction)."""
    shortest_s = _FOR_EVER
    for taint in _taints(node, "NoExecute"):
        toleration = next((entry for entry in _tolerations(pod) if _tolerates(entry, taint)), None)
        seconds = 0 if toleration is None else toleration.get("tolerationSeconds")
        shortest_s = min(shortest_s, _FOR_EVER if seconds is None else max(0.0, float(seconds)))
    return shortest_s


def _taints(node: Json, *effects: str) -> Sequence[Json]:
    return [taint for taint in node["spec"].get("taints") or () if taint["effect"] in effects]


def _tolerations(pod: Json) -> Sequence[Json]:
    tolerations: Sequence[Json] = pod["spec"].get("tolerations") or ()
    return tolerations


def _tolerates(toleration: Json, taint: Json) -> bool:
    """Return whether a toleration matches a taint (k8s.io/api/core/v1/toleration.go, ToleratesTaint)."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _bindings(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each binding of a pod, with how long its node had been closed to it."""
    nodes = _nodes(history)
    for states in _by_uid(history, "pods").values():
        for before, after in pairwise(states):
            node = after.object["spec"].get("nodeName")
            if before.object["spec"].get("nodeName") or node not in nodes:
                continue
            closed_s = _closed_s(after, nodes[node])
            text = f"pod {_name(after)} was bound to {node}, closed to it for {closed_s:.1f} s"
            yield Occasion(after.t, text, _BINDING_S - closed_s)


def _closed_s(pod: Version, states: Sequence[Version]) -> float:
    """Return for how long (s) a node had been closed to a pod when it was bound: by a taint or a cordon."""
    since_t = pod.t
    for state in reversed([state for state in states if state.t <= pod.t]):
        taints = _taints(state.object, "NoSchedule", "NoExecute")
        if state.object["spec"].get("unschedulable"):
            taints = [*taints, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}]
        if all(any(_tolerates(entry, taint) for entry in _tolerations(pod.object)) for taint in taints):
            break
        since_t = state.t
    return pod.t - since_t


@measures("bound-to-open-nodes", times=_times(_bindings))
def bound_to_open_nodes(case: Case) -> Measurement:
    """Check that no pod was bound to a node that was cordoned or had a taint that it does not tolerate."""
    return _measure(case, _bindings, "no pod was bound", "nodes", "pods")


def _settled_times(history: History, args: Args, *_: object) -> Times:
    (after,) = moments_in(args, "anchor")
    start = require(history, after)
    return [Span.at(start.t), Span.at(_unsettled_until_t(history, start.t)[0])]


def _remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float | None:
    (after,) = moments_in(args, "anchor")
    start, slack_limit_s = require(history, after), context.configuration.slack_limit_s
    until_t, unsettled = _unsettled_until_t(history, start.t)
    if not unsettled and now_t - until_t > 2 * slack_limit_s:
        return 0.0
    return start.t + compute(WindowSpec.from_json(args["window"]), context, start.detail).high_s - now_t


@measures("settled", times=_settled_times, remaining_s=_remaining_s, after="anchor")
def settled(case: Case, window: WindowSpec, *, after: Moment) -> Measurement:
    """Check that within `window` after a moment all nodes are Ready and open, and no pod is terminating."""
    history, start = case.history, require(case.history, after)
    allowed = compute(window, case.context, start.detail)
    until_t, unsettled = _unsettled_until_t(history, start.t)
    took_s = until_t - start.t
    evidence = Measurement(
        f"all nodes were Ready and open, and no pod terminating, {took_s:.1f} s after {after}",
        Measured(took_s, "s"),
        allowed,
        read=Span(start.t, history.ended_t),
        complete=[moments.written(resource, {}) for resource in ("nodes", "pods")],
        complete_t=until_t,
    )
    if not unsettled:
        late = f"all nodes were Ready and open, and no pod terminating, only {took_s:.1f} s after {after}"
        return evidence if took_s <= allowed.high_s else replace(evidence, reason=late, finding="deviates")
    lasted_s = history.ended_t - start.t
    if lasted_s > allowed.high_s:
        late = f"{unsettled} {lasted_s:.1f} s after {after}"
        return replace(evidence, reason=late, measured=Measured(lasted_s, "s"), finding="lacks")
    return Measurement(f"{unsettled} when the recording ended", window=allowed, code="gap")


def _unsettled_until_t(history: History, since_t: float) -> tuple[float, str]:
    """Return until when (s) something was not settled after a time (s), and what still is at the end."""
    until_t, unsettled = since_t, ""
    for resource, describe in (("nodes", _unsettled_node), ("pods", _unsettled_pod)):
        for states in _by_uid(history, resource).values():
            for state, end_t in _with_ends(states):
                reason = "" if state.deleted or end_t < since_t else describe(state)
                if not reason:
                    continue
                if end_t == _FOR_EVER:
                    unsettled = unsettled or reason
                else:
                    until_t = max(until_t, end_t)
    return until_t, unsettled


def _with_ends(states: Sequence[Version]) -> Iterator[tuple[Version, float]]:
    """Yield each state with the time (s) of the next one."""
    yield from ((state, following.t) for state, following in pairwise(states))
    yield states[-1], _FOR_EVER


def _unsettled_node(state: Version) -> str:
    """Return what keeps a node from being Ready and open, or an empty string."""
    if not is_ready(state.object):
        return f"{_name(state)} was not Ready"
    taints = state.object["spec"].get("taints") or ()
    return f"{_name(state)} had the taint {taints[0]['key']}" if taints else ""


def _unsettled_pod(state: Version) -> str:
    is_terminating = "deletionTimestamp" in state.object["metadata"]
    return f"pod {_name(state)} was terminating" if is_terminating else ""


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
