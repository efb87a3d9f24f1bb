"""Moments: named events in a history, each of one shape.

A new moment is one function here: it is the constructor for scenarios, and `stored_as` registers it as the
interpretation of its name in recorded runs. Moments that `became`, `created`, `removed`, `written` and
`changed` can express need no name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nodeproof.checks import heartbeats, shapes, witnessed
from nodeproof.checks.shapes import (
    Became,
    Changed,
    Computed,
    Created,
    Occurrence,
    Recorded,
    Reference,
    Rewritten,
    Shape,
    Written,
    shape,
    step_detail,
    stored_as,
)
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, condition_status
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment, words_in
from nodeproof.model.pattern import PRESENT, Json
from nodeproof.model.slack import Span

WRITE = "write"
"""What a repeated observation of a scenario's writer observes: name and resourceVersion of what it wrote.

Earlier recordings have only the name.
"""
_BOUNDED = ("next-of", "last-heartbeat")
"""Moments that are searched after or before the last of their parts."""


@stored_as("became")
def became(resource: str, name: str, pattern: Json, namespace: str = "") -> Shape:
    """Match when an object of any recorded resource starts to match a pattern (`nodeproof.model.pattern`)."""
    return Became(Reference(resource, namespace, name), pattern)


@stored_as("made", like="pattern")
def created(resource: str, name: str, namespace: str = "", like: Json = None) -> Shape:
    """Match the creation of an object of any recorded resource, from the start `like` a pattern if given."""
    return Created(Reference(resource, namespace, name), like)


@stored_as("removed")
def removed(resource: str, name: str, namespace: str = "") -> Shape:
    """Match the removal of an object of any recorded resource."""
    return Became(Reference(resource, namespace, name), matches_removal=True)


@stored_as("written")
def written(resource: str, pattern: Json) -> Shape:
    """Match any write of an object of a recorded resource that matches a pattern."""
    return Written(Reference(resource), pattern)


@stored_as("changed")
def changed(resource: str, name: str, path: str, namespace: str = "") -> Shape:
    """Match a change of the value at a path of an object, such as `status.nodeInfo.bootID`."""
    return Changed(Reference(resource, namespace, name), path)


@stored_as("condition-became", type_="type")
def condition_became(node: str, type_: str, status: str) -> Shape:
    """Match the change of a Node's condition to a status."""
    return Became(_node(node), _condition(type_, status=status))


@stored_as("condition-said", type_="type")
def condition_reported(node: str, type_: str, status: str, reason: str, message: str) -> Shape:
    """Match the change of a Node's condition to a status with this reason and text in its message."""
    return Became(
        _node(node), _condition(type_, status=status, reason=reason, message={"$contains": message})
    )


@stored_as("taint-added")
def taint_added(node: str, key: str, effect: str) -> Shape:
    """Match the addition of a taint to a Node."""
    return Became(_node(node), _taint(key, effect))


@stored_as("taint-removed")
def taint_removed(node: str, key: str, effect: str) -> Shape:
    """Match the removal of a taint from a Node."""
    return Became(_node(node), {"$not": _taint(key, effect)})


def untainted(node: str, effect: str) -> Moment:
    """Match the removal of a Node's last not-ready or unreachable taint with this effect.

    One of these taints may have replaced the other before (pkg/controller/nodelifecycle,
    taintKeyToNodeConditionMap).
    """
    taint_pattern = {"key": {"$in": [NOT_READY, UNREACHABLE]}, "effect": effect}
    return became("nodes", node, {"spec": {"taints": {"$not": [taint_pattern]}}})


@stored_as("no-execute-written")
def no_execute_written(*nodes: str) -> Shape:
    """Match a write of the not-ready or unreachable NoExecute taint on one of these Nodes.

    The taint appears, or its timeAdded changes. Each write takes a token of the zone's rate limiter, and one
    node may get two (pkg/controller/nodelifecycle: doNoExecuteTaintingPass; AddOrUpdateTaint compares
    timeAdded).
    """
    taint_pattern = {"key": {"$in": [NOT_READY, UNREACHABLE]}, "effect": "NoExecute"}
    return Rewritten(Reference("nodes"), nodes, "spec.taints", taint_pattern)


@stored_as("last-heartbeat")
def last_heartbeat(node: str, before: Moment) -> Shape:
    """Match the node's last heartbeat, a lease renewal or a status update, before a moment."""

    def find_last(history: History, since_t: float) -> Occurrence | None:
        before_occurrence = find(history, before, since_t)
        return heartbeats.last_before(history, node, before_occurrence.t) if before_occurrence else None

    read_resources = tuple(sorted({"leases", "nodes", *resources(before)}))
    return Computed(read_resources, find_last, (before,))


def cordoned(node: str) -> Moment:
    """Match the change of spec.unschedulable to true."""
    return _unschedulable_became(node, True)


def uncordoned(node: str) -> Moment:
    """Match the removal of spec.unschedulable."""
    return _unschedulable_became(node, False)


@stored_as("unschedulable-became")
def _unschedulable_became(node: str, value: bool) -> Shape:
    return Became(_node(node), {"spec": {"unschedulable": True if value else {"$in": [None, False]}}})


@stored_as("condition-types-changed")
def conditions_changed(node: str) -> Shape:
    """Match a change in the set of a Node's condition types."""
    return Changed(_node(node), "status.conditions[].type")


@stored_as("boot-id-changed")
def boot_id_changed(node: str) -> Shape:
    """Match a boot id of a Node that differs from the last one reported."""
    return Changed(_node(node), "status.nodeInfo.bootID", ignores_empty=True)


@stored_as("pod-deletion")
def pod_deletion(namespace: str, name: str) -> Shape:
    """Match the request to delete a pod (deletionTimestamp set), or its removal."""
    return Became(_pod(namespace, name), {"metadata": {"deletionTimestamp": PRESENT}}, matches_removal=True)


@stored_as("pod-gone")
def pod_removed(namespace: str, name: str) -> Shape:
    """Match the removal of a pod's object."""
    return Became(_pod(namespace, name), matches_removal=True)


@stored_as("pod-created")
def pod_created(namespace: str, name: str) -> Shape:
    """Match the creation of a pod while the watch is running; a pod on a LIST is older than the recording."""
    return Created(_pod(namespace, name))


@stored_as("pod-bound")
def pod_bound(namespace: str, name: str) -> Shape:
    """Match the setting of a pod's spec.nodeName."""
    return Became(_pod(namespace, name), {"spec": {"nodeName": PRESENT}}, matches_creation=True)


@stored_as("pod-unschedulable")
def pod_unschedulable(namespace: str, name: str) -> Shape:
    """Match a failed attempt to schedule a pod: PodScheduled=False, reason Unschedulable."""
    return Became(_pod(namespace, name), _condition("PodScheduled", reason="Unschedulable"))


@stored_as("pod-marked")
def pod_failed(namespace: str, name: str, reason: str, message: str) -> Shape:
    """Match the change of a pod's status to Failed with this reason and message."""
    status = {"phase": "Failed", "reason": reason, "message": message}
    return Became(_pod(namespace, name), {"status": status})


@stored_as("event-reported")
def event_reported(reason: str, kind: str, name: str, message: str) -> Shape:
    """Match a Kubernetes Event with this reason about this object, whose message starts with this text."""
    about = {"kind": kind, "name": name}
    pattern = {"reason": reason, "involvedObject": about, "message": {"$prefix": message}}
    return Written(Reference("events"), pattern)


def attached(attachment: str) -> Moment:
    """Match the report of a VolumeAttachment that its volume is attached."""
    return became("volumeattachments", attachment, {"status": {"attached": True}})


def detaching(attachment: str) -> Moment:
    """Match the request to delete a VolumeAttachment."""
    return became("volumeattachments", attachment, {"metadata": {"deletionTimestamp": PRESENT}})


def detached(attachment: str) -> Moment:
    """Match the removal of a VolumeAttachment."""
    return removed("volumeattachments", attachment)


@stored_as("all-came", moments="each")
def all_of(*moments: Moment) -> Shape:
    """Match the last of these moments, once each has occurred."""

    def find_last(history: History, since_t: float) -> Occurrence | None:
        occurrences = [find(history, moment) for moment in moments]
        times = [occurrence.t for occurrence in occurrences if occurrence is not None]
        is_all = times and len(times) == len(moments) and max(times) >= since_t
        return Occurrence(max(times)) if is_all else None

    def one_is_unable(history: History, within: Span) -> str:
        return next(filter(None, (unable(history, moment, within) for moment in moments)), "")

    watched_resources = tuple({name for moment in moments for name in resources(moment)})
    return Computed(watched_resources, find_last, moments, one_is_unable)


@stored_as("next-of", moment="of")
def first_after(moment: Moment, after: Moment) -> Shape:
    """Match the first occurrence of a moment after another moment; earlier occurrences are ignored."""

    def find_next(history: History, since_t: float) -> Occurrence | None:
        start = find(history, after)
        return None if start is None else find(history, moment, max(start.t, since_t))

    def is_unable(history: History, within: Span) -> str:
        start = find(history, after)
        if start is None or start.t > within.since_t:
            return f"{after} had not occurred yet"
        return unable(history, moment, within)

    return Computed(tuple({*resources(moment), *resources(after)}), find_next, (moment, after), is_unable)


@stored_as("recording-began")
def recording_began() -> Shape:
    """Match the start of the recording."""
    return Recorded((("begun", {}),))


@stored_as("fault-step", fault_id="id")
def fault_step(fault_id: str, step: str) -> Shape:
    """Match a step of a fault, by the names in `nodeproof.model.history`."""
    return Recorded((("fault", {"id": fault_id, "step": step}),), step_detail)


@stored_as("action-step", action_id="id")
def _action_step(action_id: str, step: str) -> Shape:
    """Match the begin or the end of an action (`Action.begun`, `Action.ended`)."""
    return Recorded((("action", {"id": action_id, "step": step}),))


@stored_as("write-acknowledged", in_namespace="subject")
def write_acknowledged(in_namespace: str) -> Shape:
    """Match every acknowledgement of a write by `write_repeatedly`."""
    return Recorded((("observed", {"what": WRITE, "subject": in_namespace, "value": PRESENT}),))


@stored_as("write-refused", in_namespace="subject")
def write_refused(in_namespace: str) -> Shape:
    """Match every write by `write_repeatedly` that an API server could not carry out: HTTP 5xx."""
    refused = {"what": WRITE, "subject": in_namespace, "error": {"$prefix": "HTTP 5"}}
    return Recorded((("observed", refused),))


@stored_as("observed", observation_id="id")
def _observed(observation_id: str) -> Shape:
    """Match the result of an observation (`Observation.completed`)."""
    return Recorded((("observed", {"id": observation_id}),))


def _node(name: str) -> Reference:
    return Reference("nodes", "", name)


def _pod(namespace: str, name: str) -> Reference:
    return Reference("pods", namespace, name)


def _condition(type_: str, **fields: Json) -> Json:
    return {"status": {"conditions": [{"type": type_, **fields}]}}


def _taint(key: str, effect: str) -> Json:
    return {"spec": {"taints": [{"key": key, "effect": effect}]}}


def find(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence | None:
    """Return the first occurrence of a moment at or after `since_t` (s).

    Raises:
        KeyError: This version does not know the moment.
    """
    return shapes.find(history, shape(moment), since_t)


def occurrences(history: History, moment: Moment) -> Iterator[Occurrence]:
    """Return every occurrence of a moment.

    Raises:
        LookupError: The moment is unknown, or can be found only once.
    """
    moment_shape = shape(moment)
    if isinstance(moment_shape, Computed):
        raise LookupError(f"{moment} cannot be counted")
    return moment_shape.occurrences(history)


def resources(moment: Moment) -> tuple[str, ...]:
    """Return the resources whose watches a moment is read from.

    Raises:
        KeyError: This version does not know the moment.
    """
    return shapes.resources(shape(moment))


def is_computed(moment: Moment) -> bool:
    """Return whether a moment is computed from the times of others, not read from a watch or a file."""
    return isinstance(shape(moment), Computed)


def parts(moment: Moment) -> Iterator[Moment]:
    """Yield the moment, or the moments that it is composed of."""
    moment_shape = shape(moment)
    if not isinstance(moment_shape, Computed) or not moment_shape.parts:
        yield moment
        return
    for part in moment_shape.parts:
        yield from parts(part)


def search_spans(history: History, moment: Moment, time: Span) -> Iterator[tuple[Moment, Span]]:
    """Yield the moment, or those that it is composed of, each with the time (s) in which it was searched."""
    moment_shape = shape(moment)
    if not isinstance(moment_shape, Computed) or not moment_shape.parts:
        yield moment, time
        return
    since_begin = Span(history.began_t, time.until_t)
    if moment.name not in _BOUNDED:
        for part in moment_shape.parts:
            yield from search_spans(history, part, since_begin)
        return
    *targets, bound = moment_shape.parts
    limit = find(history, bound)
    if limit is None:
        yield from search_spans(history, bound, since_begin)
        return
    yield from search_spans(history, bound, Span(history.began_t, limit.t))
    for target in targets:
        yield from search_spans(history, target, Span(max(limit.t, time.since_t), time.until_t))
    if not targets:
        last = find(history, moment)
        yield moment, Span(last.t if last else history.began_t, limit.t)


def search_bounds(moment: Moment) -> Iterator[tuple[Moment, Moment | None]]:
    """Yield each moment after which another one was searched, with that one; None for heartbeats before it.

    If one watch delivers both, their order is known without their times.
    """
    moment_shape = shape(moment)
    if not isinstance(moment_shape, Computed):
        return
    for part in moment_shape.parts:
        yield from search_bounds(part)
    if moment.name == "last-heartbeat":
        yield moment_shape.parts[0], None
    elif moment.name in _BOUNDED:
        target, bound = moment_shape.parts
        if not come_in_order(target, bound):
            yield bound, target


def is_on_our_clock(moment: Moment) -> bool:
    """Return whether a moment is an action of the harness or the lab, whose time has no error."""
    return all(not resources(part) and "by" not in part.args for part in parts(moment))


def is_watched(moment: Moment) -> bool:
    """Return whether a moment is read from watches alone: it occurred at its time or before."""
    return bool(resources(moment)) and not is_computed(moment)


def come_in_order(one: Moment, other: Moment) -> bool:
    """Return whether both moments are read from one watch or one log, which has them in order."""
    if any(witnessed.is_witnessed(part) for moment in (one, other) for part in parts(moment)):
        return bool(_log(one)) and _log(one) == _log(other)
    watches = {resources(one), resources(other)}
    return len(watches) == 1 and len(watches.pop()) == 1


def _log(moment: Moment) -> str:
    """Return the source of a line, also of the first line after another moment; empty for other moments."""
    moment_shape = shape(moment)
    if moment.name == "next-of" and isinstance(moment_shape, Computed):
        return _log(moment_shape.parts[0])
    return str(moment.args.get("by", ""))


def paths(moment: Moment) -> Mapping[str, frozenset[str]]:
    """Return the fields that a moment's pattern or path names, by resource."""
    return shapes.paths(shape(moment))


def find_state(history: History, moment: Moment, since_t: float) -> Occurrence | None:
    """Return the first occurrence at or after `since_t` (s), including an object created in the state.

    Raises:
        KeyError: This version does not know the moment.
    """
    return shapes.find_state(history, shape(moment), since_t)


def unable(history: History, moment: Moment, within: Span) -> str:
    """Return why a moment cannot have occurred at some time of a span, or an empty string."""
    reason = witnessed.not_running(history, moment, within.since_t)
    reason = reason or shapes.unable(history, shape(moment), within)
    return f"{moment}: {reason}" if reason else ""


def vacuous(history: History, moment: Moment, within: Span) -> str:
    """Return why the absence of a moment in a span says nothing, or an empty string.

    Its object may have been missing for a part of it, or in the state all the time; a witness may have ended.
    """
    moment_shape = shape(moment)
    reason = witnessed.not_running(history, moment, within.since_t)
    reason = reason or shapes.missing(history, moment_shape, within)
    if not reason and shapes.lasted(history, moment_shape, within):
        reason = "it had already occurred"
    return f"{moment}: {reason}" if reason else ""


def last_state(history: History, moment: Moment) -> str:
    """Summarize the last recorded state of a moment's object on one line."""
    if "by" in moment.args:
        return witnessed.last_message(history, str(moment.args["by"]))
    moment_shape = shape(moment)
    if isinstance(moment_shape, Computed) and "node" in moment.args:
        return _node_summary(history, str(moment.args["node"]))
    if isinstance(moment_shape, Recorded | Computed) or not moment_shape.of.name:
        return ""
    return _summary(history, moment_shape.of.resource, moment_shape.of.namespace, moment_shape.of.name)


def long_silence(history: History, anchor: Moment, longer_than_s: float) -> Occurrence | None:
    """Return the heartbeat before the first silence longer than `longer_than_s`, if a moment never occurred.

    `anchor` is the last heartbeat before that moment. None if the moment occurred, or the node has no
    heartbeat.
    """
    if find(history, Moment.from_json(anchor.args["before"])) is not None:
        return None
    return heartbeats.first_long_silence(history, str(anchor.args["node"]), longer_than_s)


def _summary(history: History, resource: str, namespace: str, name: str) -> str:
    """Summarize an object: details of nodes and pods, the resourceVersion of others."""
    if resource == "nodes":
        return _node_summary(history, name)
    if resource == "pods":
        return _pod_summary(history, namespace, name)
    versions = history.versions(resource, namespace, name)
    if not versions:
        return f"{resource} {name}: never seen"
    version = versions[-1].object["metadata"]["resourceVersion"]
    return f"{resource} {name}: {'removed' if versions[-1].deleted else f'resourceVersion {version}'}"


def _node_summary(history: History, name: str) -> str:
    """Summarize a Node: its Ready condition, taints and cordon."""
    versions = history.versions("nodes", "", name)
    if not versions:
        return f"node {name}: never seen"
    node = versions[-1].object
    taints = (
        ", ".join(f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()) or "none"
    )
    unschedulable = bool(node["spec"].get("unschedulable"))
    ready = condition_status(node, "Ready")
    return f"node {name}: Ready={ready}, taints {taints}, unschedulable {unschedulable}"


def _pod_summary(history: History, namespace: str, name: str) -> str:
    """Summarize a Pod: its phase and reason, node and deletion."""
    versions = history.versions("pods", namespace, name)
    if not versions:
        return f"pod {name}: never seen"
    pod, deleted = versions[-1].object, versions[-1].deleted
    state = "removed" if deleted else f"phase {pod['status'].get('phase')}"
    if pod["status"].get("reason"):
        state += f" ({pod['status']['reason']}: {pod['status'].get('message')})"
    node, deletion = pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp")
    return f"pod {name}: {state}, node {node}, deletion {deletion}"


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Moment)  # noqa: PLE0605
