"""Invariants: what must hold at all times of a recording, and recovery: what must hold after the last fault.

Each check of an invariant reports the number of occasions at which it could have been broken. Without any, it
proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import Args, Case, Measurement, Times, measures, moments_in, require
from nodeproof.model.cluster import (
    KUBERNETES_TAINTS,
    NOT_READY,
    OUT_OF_SERVICE,
    UNREACHABLE,
    UNSCHEDULABLE,
    Configuration,
    condition,
    condition_status,
    has_taint,
    is_ready,
)
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span, slack_s
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext, WindowSpec, compute

FOR_EVER = float("inf")
_CATCH_UP_S = 5.0
"""Time (s) that a restarted controller manager may take to fill its caches and to catch up."""
_ISOLATING = ("partition", "power-off", "freeze", "link-down", "unit-down")
"""Faults of a storm that keep a kubelet from the API server."""


@dataclass(frozen=True)
class Occasion:
    """A time (s) at which an invariant could have been broken.

    Args:
        t: when.
        text: what occurred.
        margin_s: how much earlier, or longer, it would have to be to break the invariant (s); negative if it
            did.
        lasted_s: for how long (s) before it nothing may have been missed.
    """

    t: float
    text: str
    margin_s: float
    lasted_s: float = 0.0

    @property
    def span(self) -> Span:
        """The time that it was read from."""
        return Span(self.t - self.lasted_s, self.t)


Find = Callable[[History, float, Configuration], Iterator[Occasion]]
"""Returns the occasions of a recording with this slack (s)."""


def times_of(find: Find) -> Callable[[History, Args, Configuration], Times]:
    """Return the function that gives the times of the occasions, whose slack counts.

    An occasion with a margin without end depends on the order of events alone. A certain violation depends
    on no other occasion. Otherwise, occasions at times of too much load are left out.
    """

    def times(history: History, _args: Args, configuration: Configuration) -> Times:
        violation = _certain_violation(find, history, configuration)
        if violation is not None:
            return [violation.span]
        occasions, _loaded = _by_load(list(find(history, 0.0, configuration)), history, configuration)
        return [occasion.span for occasion in occasions if occasion.margin_s < FOR_EVER]

    return times


def _certain_violation(find: Find, history: History, configuration: Configuration) -> Occasion | None:
    """Return the violation that the slack at its own time does not explain; of several, the least loaded."""
    # The order of events is uncertain by the largest slack that the profile allows.
    with_slack = [
        (slack_s(history, configuration, [occasion.span]), occasion)
        for occasion in find(history, configuration.slack_limit_s, configuration)
        if occasion.margin_s < 0.0
    ]
    violations = [(own_s, occasion) for own_s, occasion in with_slack if occasion.margin_s < -own_s]
    least_loaded = min(violations, key=lambda pair: (pair[0], pair[1].t), default=None)
    return least_loaded[1] if least_loaded else None


def _by_load(
    occasions: Sequence[Occasion], history: History, configuration: Configuration
) -> tuple[Sequence[Occasion], int]:
    """Return the occasions that prove something, and how many are left out: load affected them too much.

    If these are most of them, none is left out, so that nothing is proven.
    """
    limit_s = configuration.slack_limit_s
    if slack_s(history, configuration, [occasion.span for occasion in occasions]) <= limit_s:
        return occasions, 0
    quiet = [
        occasion
        for occasion in occasions
        if occasion.margin_s == FOR_EVER or slack_s(history, configuration, [occasion.span]) <= limit_s
    ]
    loaded = len(occasions) - len(quiet)
    return (quiet, loaded) if loaded < len(quiet) else (occasions, 0)


_MOMENT = " s after the recording began, "
"""What follows the moment of a violation in the reason of its verdict."""


def violated_s(reason: str) -> float | None:
    """Return when an invariant was violated, after the recording began (s), by the reason of its verdict."""
    moment = re.match(rf"([0-9.]+){_MOMENT}", reason)
    return float(moment[1]) if moment else None


def measure(case: Case, find: Find, premise: str, *resources: str) -> Measurement:
    """Return the measurement of an invariant by the occasion that came closest to breaking it."""
    history, context = case.history, case.context
    occasions: Sequence[Occasion] = list(find(history, context.slack_s, context.configuration))
    if not occasions:
        return Measurement(premise, code="not-met")
    occasions, loaded = _by_load(occasions, history, context.configuration)
    closest = _certain_violation(find, history, context.configuration) or min(
        occasions, key=lambda occasion: occasion.margin_s
    )
    measured, read = Measured(float(len(occasions)), "occasions"), Span(history.began_t, history.ended_t)
    if closest.margin_s < -context.slack_s:
        reason = f"{closest.t - history.began_t:.1f}{_MOMENT}{closest.text}"
        return Measurement(reason, measured, finding="deviates", read=closest.span)
    if closest.margin_s < -context.configuration.slack_limit_s:
        return Measurement(closest.text, measured, code="host-too-loaded", read=closest.span)
    left_out = f"; left out because of load: {loaded}" if loaded else ""
    return Measurement(
        f"held on {len(occasions)} occasions; closest: {closest.text}{left_out}",
        measured,
        read=read,
        complete=[moments.written(resource, {}) for resource in resources],
        complete_t=max(occasion.t for occasion in occasions),
        if_missed="there may have been more occasions",
    )


def by_uid(history: History, resource: str) -> Mapping[str, Sequence[Version]]:
    """Return the states of each object of a resource, in the order of receipt."""
    return _states_by("uid", history, resource)


def nodes_by_name(history: History) -> Mapping[str, Sequence[Version]]:
    """Return the states of the Nodes by name; a Node may have been created again."""
    return _states_by("name", history, "nodes")


def _states_by(key: str, history: History, resource: str) -> Mapping[str, Sequence[Version]]:
    states: dict[str, list[Version]] = {}
    for version in history.all_versions(resource):
        states.setdefault(str(version.object["metadata"][key]), []).append(version)
    return states


def name_of(version: Version) -> str:
    return str(version.object["metadata"]["name"])


def with_ends(states: Sequence[Version]) -> Iterator[tuple[Version, float]]:
    """Yield each state with the time (s) of the next one."""
    yield from ((state, following.t) for state, following in pairwise(states))
    yield states[-1], FOR_EVER


def possible_pasts(states: Sequence[Version], t: float, slack_s: float) -> Sequence[Sequence[Version]]:
    """Return the states of an object up to a time (s) of another watch, which may be off by the slack (s)."""
    return [
        states[: number + 1]
        for number, (state, until_t) in enumerate(with_ends(states))
        if state.t <= t + slack_s and until_t >= t - slack_s
    ]


def unreachable_toleration_s(pod: Json) -> float:
    """Return for how long (s) a pod tolerates a Node with the NoExecute taint of an unreachable one."""
    return toleration_s(pod, {"spec": {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]}})


def toleration_s(pod: Json, node: Json) -> float:
    """Return for how long (s) a pod tolerates a Node's NoExecute taints (pkg/controller/tainteviction)."""
    shortest_s = FOR_EVER
    for taint in taints_of(node, "NoExecute"):
        toleration = next((entry for entry in tolerations_of(pod) if _matches(entry, taint)), None)
        seconds = 0 if toleration is None else toleration.get("tolerationSeconds")
        shortest_s = min(shortest_s, FOR_EVER if seconds is None else max(0.0, float(seconds)))
    return shortest_s


def controllers_down(history: History) -> Sequence[Span]:
    """Return when a fault kept the controller manager from its work, with the time to catch up."""
    spans = component_stopped_spans(history, "kube-controller-manager")
    return [Span(span.since_t, span.until_t + _CATCH_UP_S) for span in spans]


def component_stopped_spans(history: History, component: str) -> Sequence[Span]:
    """Return when a fault may have stopped a component of the control plane."""
    return _fault_spans(history, component, "injecting", "healed", ("power-off",))


def cut_off_spans(history: History, node: str) -> Sequence[Span]:
    """Return when a node's kubelet could not reach the API server, proven by the probe of a fault."""
    return _fault_spans(history, node, "injected", "healing", _ISOLATING)


def _fault_spans(
    history: History, place: str, first: str, last: str, names: Collection[str]
) -> Sequence[Span]:
    """Return the times between two steps of the faults with these names on a node or component."""
    spans: dict[str, Span] = {}
    for entry in history.of_kind("fault"):
        fault_id, step = str(entry.data["id"]), entry.data["step"]
        if entry.data["node"] != place or entry.data.get("fault", {}).get("fault") not in names:
            continue
        if step == first:
            spans[fault_id] = Span(entry.t, FOR_EVER)
        elif step == last and fault_id in spans:
            spans[fault_id] = Span(spans[fault_id].since_t, entry.t)
    return list(spans.values())


def without(span: Span, excluded: Iterable[Span]) -> Sequence[Span]:
    """Return what is left of a span without others."""
    left = [span]
    for other in excluded:
        left = [
            part
            for whole in left
            for part in (
                Span(whole.since_t, min(whole.until_t, other.since_t)),
                Span(max(whole.since_t, other.until_t), whole.until_t),
            )
            if part.since_t < part.until_t
        ]
    return left


def taints_of(node: Json, *effects: str) -> Sequence[Json]:
    return [taint for taint in node["spec"].get("taints") or () if taint["effect"] in effects]


def tolerations_of(pod: Json) -> Sequence[Json]:
    tolerations: Sequence[Json] = pod["spec"].get("tolerations") or ()
    return tolerations


def _matches(toleration: Json, taint: Json) -> bool:
    """Return whether a toleration matches a taint (k8s.io/api/core/v1/toleration.go, ToleratesTaint)."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


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
        deleted = _deletion(states, "DeletionByTaintManager")
        node = deleted and deleted.object["spec"].get("nodeName")
        if deleted and node in nodes:
            yield _eviction(deleted, str(node), nodes[str(node)], slack_s)


def _deletion(states: Sequence[Version], reason: str) -> Version | None:
    """Return the deletion of a pod if it was observed, and is a disruption for this reason."""
    deleted = next((state for state in states if "deletionTimestamp" in state.object["metadata"]), None)
    if deleted is None or deleted.listed:
        return None
    mark = condition(deleted.object, "DisruptionTarget")
    return deleted if mark and mark.get("reason") == reason else None


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
        if all(any(_matches(entry, taint) for entry in tolerations_of(pod.object)) for taint in taints):
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
        for lasting in _by_ready(states):
            first, ended_t = lasting[0][0], lasting[-1][1]
            span = Span(first.t, min(ended_t, history.ended_t))
            must_agree = Span(first.t, first.t + allowed_s)
            if span.length_s < allowed_s or any(map(must_agree.touches, down)):
                continue
            right_t = next((state.t for state, _end_t in lasting if _agrees(state)), span.until_t)
            took_s, status = right_t - first.t, condition_status(first.object, "Ready")
            text = f"the taints of {node} agreed with Ready={status} after {took_s:.1f} s"
            yield Occasion(right_t, text, allowed_s - took_s, took_s)


def _by_ready(states: Sequence[Version]) -> Iterator[Sequence[tuple[Version, float]]]:
    """Yield for each change of a node's Ready the states that have its new status, with their ends (s)."""
    groups = groupby(with_ends(states), lambda pair: condition_status(pair[0].object, "Ready"))
    _unchanged, *changed = (list(lasting) for _status, lasting in groups)
    yield from changed


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
                late_s = part.length_s - tolerated_s
                if late_s < 0:
                    continue
                text = (
                    f"pod {name_of(bound)} was on {node} for {late_s:.1f} s after its toleration of "
                    f"{tolerated_s:g} s"
                )
                yield Occasion(part.until_t, text, _EVICTION_S - late_s, part.length_s)


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


_SERVICE = "kubernetes.io/service-name"
_ENDPOINTS_S = 5.0
"""Time (s) that the endpoint of a pod may take: two retries, after 1 and 2 s, and the writes
(pkg/controller/endpointslice/endpointslice_controller.go: defaultSyncBackOff).
"""


def _changes(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each time in which a pod serves or not, with how long its endpoint disagreed at most."""
    services, ready, down = _services(history), list(_ready_endpoints(history)), controllers_down(history)
    for uid, states in by_uid(history, "pods").items():
        if services.isdisjoint((states[0].object["metadata"].get("labels") or {}).values()):
            continue
        for serves, span in _spans(states, history.ended_t):
            must_agree = Span(span.since_t, span.since_t + _ENDPOINTS_S)
            if must_agree.until_t > span.until_t or any(map(must_agree.touches, down)):
                continue
            wrong = [
                disagreement
                for disagreement in _disagreements(uid, serves, span, ready)
                if not any(map(Span(disagreement.since_t, disagreement.since_t + _ENDPOINTS_S).touches, down))
            ]
            longest = max(wrong, key=lambda span: span.length_s, default=Span.at(span.since_t))
            wrong_s = longest.length_s
            pod, node = name_of(states[0]), states[-1].object["spec"].get("nodeName")
            text = f"the endpoint of pod {pod} on {node} disagreed with ready={serves} for {wrong_s:.1f} s"
            yield Occasion(longest.until_t, text, _ENDPOINTS_S - wrong_s, wrong_s)


def _disagreements(
    uid: str, serves: bool, span: Span, ready: Sequence[tuple[frozenset[str], float, float]]
) -> Iterator[Span]:
    """Yield each time within a span at which a pod's endpoint was not as the pod."""
    near = (state for state in ready if state[2] > span.since_t and state[1] < span.until_t)
    for agrees, group in groupby(near, lambda state: (uid in state[0]) == serves):
        states = list(group)
        if not agrees:
            yield Span(max(states[0][1], span.since_t), min(states[-1][2], span.until_t))


def _services(history: History) -> frozenset[str]:
    slices = history.all_versions("endpointslices")
    labels = (state.object["metadata"].get("labels") or {} for state in slices)
    return frozenset(label[_SERVICE] for label in labels if _SERVICE in label)


def _ready_endpoints(history: History) -> Iterator[tuple[frozenset[str], float, float]]:
    """Yield the uids of the pods whose endpoint was ready, from when until when (s)."""
    by_slice: dict[str, frozenset[str]] = {}
    ready, since_t = frozenset[str](), history.began_t
    for state in history.all_versions("endpointslices"):
        yield ready, since_t, state.t
        by_slice[str(state.object["metadata"]["uid"])] = frozenset(
            endpoint["targetRef"]["uid"]
            for endpoint in (() if state.deleted else state.object.get("endpoints") or ())
            if endpoint.get("conditions", {}).get("ready", True) and "targetRef" in endpoint
        )
        ready, since_t = frozenset().union(*by_slice.values()), state.t
    yield ready, since_t, history.ended_t


def _spans(states: Sequence[Version], ended_t: float) -> Iterator[tuple[bool, Span]]:
    """Yield whether a pod serves, from when until when (s), since it first did."""
    spans = [
        (serves, list(group)) for serves, group in groupby(with_ends(states), lambda pair: _serves(pair[0]))
    ]
    for number, (serves, group) in enumerate(spans):
        if serves or number:
            yield serves, Span(group[0][0].t, min(group[-1][1], ended_t))


def _serves(pod: Version) -> bool:
    """Return whether a pod's endpoint must be ready (staging/src/k8s.io/endpointslice: podToEndpoint)."""
    if _is_terminating(pod):
        return False
    is_finished = pod.object["status"].get("phase") in _FINISHED
    return not is_finished and condition_status(pod.object, "Ready") == "True"


@measures("endpoints-follow-pods", times=times_of(_changes))
def endpoints_follow_pods(case: Case) -> Measurement:
    """Check that a Service's endpoints were ready exactly while their pods were Ready and not terminating."""
    premise = "no pod of a Service became Ready or unready for long enough"
    return measure(case, _changes, premise, "pods", "endpointslices")


_WRITE_S = 0.5
"""Time (s) that the write of a taint may take: the rate limits how often one begins."""


def _taint_writes(history: History, _slack_s: float, configuration: Configuration) -> Iterator[Occasion]:
    """Yield each NoExecute taint of a lost node that was due before the rate allowed it.

    The limit of a controller manager that restarted begins anew. An exchange of the two taints has none.
    """
    rate, down = configuration["E"], controllers_down(history)
    interval_s = 1 / rate if rate else FOR_EVER
    for (zone, earlier_t, _due_t, _node), (other_zone, t, due_t, node) in pairwise(
        sorted(_lost_and_tainted(history))
    ):
        gap = Span(earlier_t, t)
        if zone == other_zone and due_t < earlier_t + interval_s and not any(map(gap.touches, down)):
            text = f"{node} was tainted {gap.length_s:.1f} s after another node (1/E is {interval_s:g} s)"
            yield Occasion(t, text, gap.length_s - interval_s + _WRITE_S, gap.length_s)


def _lost_and_tainted(history: History) -> Iterator[tuple[str, float, float, str]]:
    """Yield for each loss of a node its zone, when it was tainted and last Ready (s), and its name."""
    for node, states in nodes_by_name(history).items():
        due_t = states[0].t
        for before, after in pairwise(states):
            due_t = after.t if is_ready(before.object) else due_t
            if after.deleted or after.listed or _is_lost(before) or not _is_lost(after):
                continue
            yield _zone(after), after.t, due_t, node


def _zone(node: Version) -> str:
    """Return the key of a node's zone (k8s.io/component-helpers/node/topology: GetZoneKey)."""
    labels = node.object["metadata"].get("labels") or {}
    groups = ("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
    return "/".join(
        next((labels[f"{group}/{part}"] for group in groups if f"{group}/{part}" in labels), "")
        for part in ("region", "zone")
    )


def _is_lost(node: Version) -> bool:
    return any(has_taint(node.object, key, "NoExecute") for key in (NOT_READY, UNREACHABLE))


@measures("taint-rate-kept", times=times_of(_taint_writes))
def taint_rate_kept(case: Case) -> Measurement:
    """Check that lost nodes of a zone were tainted NoExecute no faster than the node eviction rate."""
    return measure(case, _taint_writes, "no two nodes of a zone had to be tainted at once", "nodes")


def _exempt_pods(history: History, slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each DaemonSet's or static pod of a lost node, by the node's taint or the pod's eviction.

    DaemonSets do not tolerate NoExecute taints of users, static pods do.
    """
    tainted = {
        node: list(_tainted(states, history.ended_t)) for node, states in nodes_by_name(history).items()
    }
    for states in by_uid(history, "pods").values():
        meta, node = states[0].object["metadata"], str(states[-1].object["spec"].get("nodeName"))
        is_static = _is_mirror(states[0])
        if not is_static and all(owner["kind"] != "DaemonSet" for owner in meta.get("ownerReferences") or ()):
            continue
        pod, evicted = f"pod {name_of(states[0])}", _deletion(states, "DeletionByTaintManager")
        ended_t = next((state.t for state in states if _is_terminating(state)), history.ended_t)
        # An eviction may be under way while the taint of a user is removed.
        lately = Span(ended_t - _EVICTION_S - slack_s, ended_t + slack_s)
        by_users = [span for state, span in tainted.get(node, ()) if _has_users_taint(state)]
        if evicted and (is_static or not any(map(lately.touches, by_users))):
            yield Occasion(ended_t, f"{pod} of {node} was evicted", -FOR_EVER)
        lived = Span(states[0].t, ended_t)
        for state, span in () if evicted else tainted.get(node, ()):
            if _is_lost(state) and lived.touches(span):
                yield Occasion(span.since_t, f"{pod} stayed when {node} was tainted", FOR_EVER)


def _has_users_taint(node: Version) -> bool:
    keys = [taint["key"] for taint in taints_of(node.object, "NoExecute")]
    return any(key == OUT_OF_SERVICE or not key.startswith(KUBERNETES_TAINTS) for key in keys)


@measures("exempt-pods-stay", times=times_of(_exempt_pods))
def exempt_pods_stay(case: Case) -> Measurement:
    """Check that no DaemonSet's pod and no static pod was evicted because its node was lost."""
    premise = "no node with such a pod was tainted"
    return measure(case, _exempt_pods, premise, "nodes", "pods")


_ORDER = {"Pending": 0, "Running": 1, "Failed": 2, "Succeeded": 3}
"""A fake container runtime ends containers with 0, so Succeeded may follow Failed."""


def _advances(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
    """Yield each change of a pod's phase, and each of a deletion that was requested.

    A mirror pod outlives the static pod that it shows, which may start again. A shorter grace period that is
    over already ends now, which may be later than the end of the longer one
    (k8s.io/apiserver/pkg/registry/rest/delete.go: BeforeDelete).
    """
    for states in by_uid(history, "pods").values():
        if _is_mirror(states[0]):
            continue
        for before, after in pairwise(states):
            old, new = (str(state.object["status"].get("phase")) for state in (before, after))
            if old != new and {old, new} <= _ORDER.keys():
                text = f"pod {name_of(after)} went from {old} to {new}"
                yield Occasion(after.t, text, FOR_EVER if _ORDER[old] < _ORDER[new] else -FOR_EVER)
            (old, old_s), (new, new_s) = map(_deadline, (before, after))
            if old and old != new:
                is_earlier = new and (new < old or new_s < old_s)
                text = f"the deletionTimestamp of pod {name_of(after)} changed from {old} to {new or 'none'}"
                yield Occasion(after.t, text, FOR_EVER if is_earlier else -FOR_EVER)


def _is_mirror(pod: Version) -> bool:
    return "kubernetes.io/config.mirror" in (pod.object["metadata"].get("annotations") or {})


def _deadline(pod: Version) -> tuple[str, float]:
    """Return the deletionTimestamp of a pod and its grace period (s)."""
    meta = pod.object["metadata"]
    return str(meta.get("deletionTimestamp") or ""), float(meta.get("deletionGracePeriodSeconds") or 0)


@measures("lifecycle-advances", times=times_of(_advances))
def lifecycle_advances(case: Case) -> Measurement:
    """Check that no pod went back to an earlier phase, and that no deletion was withdrawn or put off."""
    return measure(case, _advances, "no pod changed its phase", "pods")


_STALE_S = 2.0
"""Time (s) that the disruption controller may take to count pods again."""


def _disruptions(workload: str, min_available: int) -> Find:
    """Return what yields each eviction by the API, with how long the budget had been used up."""

    def find(history: History, _slack_s: float, _configuration: Configuration) -> Iterator[Occasion]:
        down = controllers_down(history)
        pods = [
            states
            for states in by_uid(history, "pods").values()
            if workload in (states[0].object["metadata"].get("labels") or {}).values()
        ]
        for states in pods:
            evicted = _deletion(states, "EvictionByEvictionAPI")
            if evicted is None or evicted.object["status"].get("phase") != "Running":
                continue
            others = [other for other in pods if other is not states]
            used_up = Span(_unavailable_since_t(others, min_available, evicted.t), evicted.t)
            stale_s = sum(part.length_s for part in without(used_up, down) if part.until_t == evicted.t)
            text = (
                f"pod {name_of(evicted)} was evicted, when fewer than {min_available} others had been "
                f"available for {stale_s:.1f} s"
            )
            yield Occasion(evicted.t, text, _STALE_S - stale_s, stale_s)

    return find


def _unavailable_since_t(pods: Sequence[Sequence[Version]], least: int, t: float) -> float:
    """Return since when (s) fewer pods than `least` had been available at a time, or that time."""
    since_t = t
    for changed_t in sorted({state.t for states in pods for state in states if state.t < t}, reverse=True):
        if sum(_is_available(states, changed_t) for states in pods) >= least:
            break
        since_t = changed_t
    return since_t


def _is_available(states: Sequence[Version], t: float) -> bool:
    last = next((state for state in reversed(states) if state.t <= t), None)
    return last is not None and not _is_terminating(last) and condition_status(last.object, "Ready") == "True"


def _disruption_times(history: History, args: Args, configuration: Configuration) -> Times:
    return times_of(_disruptions(args["workload"], args["min_available"]))(history, args, configuration)


@measures("budget-kept", times=_disruption_times)
def budget_kept(case: Case, workload: str, min_available: int) -> Measurement:
    """Check that no eviction by the API left fewer than `min_available` pods of a workload available."""
    find = _disruptions(workload, min_available)
    return measure(case, find, "no running pod of a workload with a budget was evicted", "pods")


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
        if not _is_terminating(state) and condition_status(state.object, "Ready") == "True":
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
    return f"pod {name_of(state)} was terminating" if _is_terminating(state) else ""


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
