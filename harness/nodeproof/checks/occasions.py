"""Occasions: times of a recording at which an invariant could have been broken, and how they are measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nodeproof.checks import moments
from nodeproof.checks.checks import Times
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import UNREACHABLE, Configuration
from nodeproof.model.history import History, Version
from nodeproof.model.slack import Span, slack_s
from nodeproof.model.verdict import Measured

Json = Any
Args = Mapping[str, Json]
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


def measure(case: Case, find: Find, premise: str, *resources: str) -> Measurement:
    """Return the measurement of an invariant by the occasion that came closest to breaking it."""
    history, context = case.history, case.context
    occasions: Sequence[Occasion] = list(find(history, context.slack_s, context.configuration))
    if not occasions:
        return Measurement(f"not met: {premise}", code="no-anchor")
    occasions, loaded = _by_load(occasions, history, context.configuration)
    closest = _certain_violation(find, history, context.configuration) or min(
        occasions, key=lambda occasion: occasion.margin_s
    )
    measured, read = Measured(float(len(occasions)), "occasions"), Span(history.began_t, history.ended_t)
    if closest.margin_s < -context.slack_s:
        reason = f"{closest.t - history.began_t:.1f} s after the recording began, {closest.text}"
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
    states: dict[str, list[Version]] = {}
    for version in history.all_versions(resource):
        states.setdefault(str(version.object["metadata"]["uid"]), []).append(version)
    return states


def nodes_by_name(history: History) -> Mapping[str, Sequence[Version]]:
    """Return the states of the Nodes by name; a Node may have been created again."""
    states: dict[str, list[Version]] = {}
    for version in history.all_versions("nodes"):
        states.setdefault(name_of(version), []).append(version)
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
        toleration = next((entry for entry in tolerations_of(pod) if tolerates(entry, taint)), None)
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


def tolerates(toleration: Json, taint: Json) -> bool:
    """Return whether a toleration matches a taint (k8s.io/api/core/v1/toleration.go, ToleratesTaint)."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
