"""Invariants of Services: what must hold of their endpoints at all times of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from nodeproof.checks.checks import measures
from nodeproof.checks.occasions import (
    Occasion,
    by_uid,
    controllers_down,
    measure,
    name_of,
    times_of,
    with_ends,
)
from nodeproof.checks.placing import Case, Measurement
from nodeproof.model.cluster import Configuration, condition_status
from nodeproof.model.history import History, Version
from nodeproof.model.judgment import Check, words_in
from nodeproof.model.slack import Span

_SERVICE = "kubernetes.io/service-name"
_ENDPOINTS_S = 5.0
"""Time (s) that the endpoint of a pod may take: two retries, after 1 and 2 s, and the writes
(pkg/controller/endpointslice/endpointslice_controller.go: defaultSyncBackOff).
"""
_FINISHED = ("Succeeded", "Failed")


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
            longest = max(wrong, key=lambda span: span.until_t - span.since_t, default=Span.at(span.since_t))
            wrong_s = longest.until_t - longest.since_t
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
    if pod.deleted or "deletionTimestamp" in pod.object["metadata"]:
        return False
    is_finished = pod.object["status"].get("phase") in _FINISHED
    return not is_finished and condition_status(pod.object, "Ready") == "True"


@measures("endpoints-follow-pods", times=times_of(_changes))
def endpoints_follow_pods(case: Case) -> Measurement:
    """Check that a Service's endpoints were ready exactly while their pods were Ready and not terminating."""
    return measure(
        case,
        _changes,
        "no pod of a Service became Ready or unready for long enough",
        "pods",
        "endpointslices",
    )


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
