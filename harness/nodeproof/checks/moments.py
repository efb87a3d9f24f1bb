"""Moments: named events in a history, each of one shape.

A moment is stored by name and arguments, and interpreted by the current code. A new moment is a constructor
and its line in `_WORDS`. Moments that `became`, `made`, `removed`, `written` and `changed` can express need
no name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodeproof.checks import heartbeats, last_seen, shapes, witnessed
from nodeproof.checks.occurrence import Args, Occurrence
from nodeproof.checks.shapes import (
    Became,
    Changed,
    Computed,
    Made,
    Reference,
    Rewritten,
    Said,
    Shape,
    Written,
    told_by_step,
)
from nodeproof.model.cluster import NOT_READY, UNREACHABLE
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import PRESENT
from nodeproof.model.slack import Span

Json = Any


def became(resource: str, name: str, pattern: Json, namespace: str = "") -> Moment:
    """Match when an object of any recorded resource starts to match a pattern (`nodeproof.model.pattern`)."""
    return Moment("became", {"resource": resource, "namespace": namespace, "name": name, "pattern": pattern})


def made(resource: str, name: str, namespace: str = "", like: Json = None) -> Moment:
    """Match the creation of an object of any recorded resource, from the start `like` a pattern if given."""
    pattern = {} if like is None else {"pattern": like}
    return Moment("made", {"resource": resource, "namespace": namespace, "name": name, **pattern})


def removed(resource: str, name: str, namespace: str = "") -> Moment:
    """Match the removal of an object of any recorded resource."""
    return Moment("removed", {"resource": resource, "namespace": namespace, "name": name})


def written(resource: str, pattern: Json) -> Moment:
    """Match any write of an object of a recorded resource that matches a pattern."""
    return Moment("written", {"resource": resource, "pattern": pattern})


def changed(resource: str, name: str, path: str, namespace: str = "") -> Moment:
    """Match a change of the value at a path of an object, such as `status.nodeInfo.bootID`."""
    return Moment("changed", {"resource": resource, "namespace": namespace, "name": name, "path": path})


def condition_became(node: str, type_: str, status: str) -> Moment:
    """Match the change of a Node's condition to a status."""
    return Moment("condition-became", {"node": node, "type": type_, "status": status})


def condition_said(node: str, type_: str, status: str, reason: str, message: str) -> Moment:
    """Match the change of a Node's condition to a status with this reason and text in its message."""
    condition = {"status": status, "reason": reason, "message": message}
    return Moment("condition-said", {"node": node, "type": type_, **condition})


def taint_added(node: str, key: str, effect: str) -> Moment:
    """Match the addition of a taint to a Node."""
    return Moment("taint-added", {"node": node, "key": key, "effect": effect})


def taint_removed(node: str, key: str, effect: str) -> Moment:
    """Match the removal of a taint from a Node."""
    return Moment("taint-removed", {"node": node, "key": key, "effect": effect})


def untainted(node: str, effect: str) -> Moment:
    """Match the removal of a Node's last not-ready or unreachable taint with this effect.

    One of these taints may have replaced the other before (pkg/controller/nodelifecycle,
    taintKeyToNodeConditionMap).
    """
    taint_pattern = {"key": {"$in": [NOT_READY, UNREACHABLE]}, "effect": effect}
    return became("nodes", node, {"spec": {"taints": {"$not": [taint_pattern]}}})


def no_execute_written(*nodes: str) -> Moment:
    """Match a write of the not-ready or unreachable NoExecute taint on one of these Nodes.

    The taint appears, or its timeAdded changes. Each write takes a token of the zone's rate limiter, and one
    node may get two (pkg/controller/nodelifecycle: doNoExecuteTaintingPass; AddOrUpdateTaint compares
    timeAdded).
    """
    return Moment("no-execute-written", {"nodes": list(nodes)})


def last_heartbeat(node: str, before: Moment) -> Moment:
    """Match the node's last heartbeat, a lease renewal or a status update, before a moment."""
    return Moment("last-heartbeat", {"node": node, "before": before.to_json()})


def cordoned(node: str) -> Moment:
    """Match the change of spec.unschedulable to true."""
    return Moment("unschedulable-became", {"node": node, "value": True})


def uncordoned(node: str) -> Moment:
    """Match the removal of spec.unschedulable."""
    return Moment("unschedulable-became", {"node": node, "value": False})


def conditions_changed(node: str) -> Moment:
    """Match a change in the set of a Node's condition types."""
    return Moment("condition-types-changed", {"node": node})


def boot_id_changed(node: str) -> Moment:
    """Match a boot id of a Node that differs from the last one reported."""
    return Moment("boot-id-changed", {"node": node})


def pod_deletion(namespace: str, name: str) -> Moment:
    """Match the request to delete a pod (deletionTimestamp set), or its removal."""
    return Moment("pod-deletion", {"namespace": namespace, "name": name})


def pod_gone(namespace: str, name: str) -> Moment:
    """Match the removal of a pod's object."""
    return Moment("pod-gone", {"namespace": namespace, "name": name})


def pod_created(namespace: str, name: str) -> Moment:
    """Match the creation of a pod while the watch is running; a pod on a LIST is older than the recording."""
    return Moment("pod-created", {"namespace": namespace, "name": name})


def pod_bound(namespace: str, name: str) -> Moment:
    """Match the setting of a pod's spec.nodeName."""
    return Moment("pod-bound", {"namespace": namespace, "name": name})


def pod_unschedulable(namespace: str, name: str) -> Moment:
    """Match a failed attempt to schedule a pod: PodScheduled=False, reason Unschedulable."""
    return Moment("pod-unschedulable", {"namespace": namespace, "name": name})


def pod_marked(namespace: str, name: str, reason: str, message: str) -> Moment:
    """Match the change of a pod's status to Failed with this reason and message."""
    args = {"namespace": namespace, "name": name, "reason": reason, "message": message}
    return Moment("pod-marked", args)


def event_reported(reason: str, kind: str, name: str, message: str) -> Moment:
    """Match a Kubernetes Event with this reason about this object, whose message starts with this text."""
    return Moment("event-reported", {"reason": reason, "kind": kind, "name": name, "message": message})


def all_came(*moments: Moment) -> Moment:
    """Match the last of these moments, once each has occurred."""
    return Moment("all-came", {"each": [moment.to_json() for moment in moments]})


def next_of(moment: Moment, after: Moment) -> Moment:
    """Match the first occurrence of a moment after another moment; earlier occurrences are ignored."""
    return Moment("next-of", {"of": moment.to_json(), "after": after.to_json()})


def recording_began() -> Moment:
    """Match the start of the recording."""
    return Moment("recording-began", {})


def fault_step(fault_id: str, step: str) -> Moment:
    """Match a step of a fault, by the names in `nodeproof.model.history`."""
    return Moment("fault-step", {"id": fault_id, "step": step})


def shape(moment: Moment) -> Shape:
    """Return the shape of a moment.

    Raises:
        KeyError: This version does not know the moment.
    """
    return _WORDS[moment.name](moment.args)


def find(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence | None:
    """Return the first occurrence of a moment at or after `since_t` (s).

    Raises:
        KeyError: This version does not know the moment.
    """
    return shapes.find(history, shape(moment), since_t)


def each(history: History, moment: Moment) -> Iterator[Occurrence]:
    """Return every occurrence of a moment.

    Raises:
        LookupError: The moment is unknown, or can be found only once.
    """
    moment_shape = shape(moment)
    if isinstance(moment_shape, Computed):
        raise LookupError(f"{moment} cannot be counted")
    return moment_shape.each(history)


def resources(moment: Moment) -> tuple[str, ...]:
    """Return the resources whose watches a moment is read from.

    Raises:
        KeyError: This version does not know the moment.
    """
    return shapes.resources(shape(moment))


def parts(moment: Moment) -> Iterator[Moment]:
    """Yield the moment, or the moments that it is composed of."""
    moment_shape = shape(moment)
    if not isinstance(moment_shape, Computed) or not moment_shape.parts:
        yield moment
        return
    for part in moment_shape.parts:
        yield from parts(part)


def sought(history: History, moment: Moment, time: Span) -> Iterator[tuple[Moment, Span]]:
    """Yield the moment, or those that it is composed of, each with the time (s) in which it was searched."""
    moment_shape = shape(moment)
    if not isinstance(moment_shape, Computed) or not moment_shape.parts:
        yield moment, time
        return
    since_begin = Span(history.began_t, time.until_t)
    if moment.name != "next-of":
        for part in moment_shape.parts:
            yield from sought(history, part, since_begin)
        return
    target, after = moment_shape.parts
    start = find(history, after)
    yield from sought(history, after, Span(history.began_t, start.t) if start else since_begin)
    if start is not None:
        yield from sought(history, target, Span(max(start.t, time.since_t), time.until_t))


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
    return _with_moment(moment, shapes.unable(history, shape(moment), within))


def never_there(history: History, moment: Moment, until_t: float) -> str:
    """Return which object of a moment did not exist up to a time (s), or an empty string."""
    return _with_moment(moment, shapes.never_there(history, shape(moment), until_t))


def _with_moment(moment: Moment, reason: str) -> str:
    return f"{moment}: {reason}" if reason else ""


def last_state(history: History, moment: Moment) -> str:
    """Summarize the last recorded state of a moment's object on one line."""
    if "by" in moment.args:
        return witnessed.last_told(history, str(moment.args["by"]))
    moment_shape = shape(moment)
    if isinstance(moment_shape, Computed) and "node" in moment.args:
        return last_seen.of_node(history, str(moment.args["node"]))
    if isinstance(moment_shape, Said | Computed) or not moment_shape.of.name:
        return ""
    return last_seen.of(history, moment_shape.of.resource, moment_shape.of.namespace, moment_shape.of.name)


def long_silence(history: History, anchor: Moment, longer_than_s: float) -> Occurrence | None:
    """Return the heartbeat before the first silence longer than `longer_than_s`, if a moment never occurred.

    `anchor` is the last heartbeat before that moment. None if the moment occurred, or the node has no
    heartbeat.
    """
    if find(history, Moment.from_json(anchor.args["before"])) is not None:
        return None
    return heartbeats.first_long_silence(history, str(anchor.args["node"]), longer_than_s)


def _node(args: Args) -> Reference:
    return Reference("nodes", "", str(args["node"]))


def _pod(args: Args) -> Reference:
    return Reference("pods", str(args["namespace"]), str(args["name"]))


def _any(args: Args) -> Reference:
    return Reference(str(args["resource"]), str(args["namespace"]), str(args["name"]))


def _condition(type_: str, **fields: Json) -> Json:
    return {"status": {"conditions": [{"type": type_, **fields}]}}


def _taint(args: Args) -> Json:
    return {"spec": {"taints": [{"key": args["key"], "effect": args["effect"]}]}}


def _last_heartbeat(args: Args) -> Computed:
    def find_last(history: History, since_t: float) -> Occurrence | None:
        before_occurrence = find(history, Moment.from_json(args["before"]), since_t)
        return (
            heartbeats.last_before(history, str(args["node"]), before_occurrence.t)
            if before_occurrence
            else None
        )

    return Computed(("leases", "nodes"), find_last)


def _last_of(args: Args) -> Computed:
    members = [Moment.from_json(moment_json) for moment_json in args["each"]]

    def find_last(history: History, since_t: float) -> Occurrence | None:
        occurrences = [find(history, moment) for moment in members]
        times = [occurrence.t for occurrence in occurrences if occurrence is not None]
        is_all = times and len(times) == len(members) and max(times) >= since_t
        return Occurrence(max(times)) if is_all else None

    def one_is_unable(history: History, within: Span) -> str:
        return next(filter(None, (unable(history, moment, within) for moment in members)), "")

    watched_resources = tuple({name for moment in members for name in resources(moment)})
    return Computed(watched_resources, find_last, tuple(members), one_is_unable)


def _next_of(args: Args) -> Computed:
    target, after = Moment.from_json(args["of"]), Moment.from_json(args["after"])

    def find_next(history: History, since_t: float) -> Occurrence | None:
        start = find(history, after)
        return None if start is None else find(history, target, max(start.t, since_t))

    def is_unable(history: History, within: Span) -> str:
        start = find(history, after)
        if start is None or start.t > within.since_t:
            return f"{after} had not occurred yet"
        return unable(history, target, within)

    return Computed(tuple({*resources(target), *resources(after)}), find_next, (target, after), is_unable)


_WORDS: Mapping[str, Callable[[Args], Shape]] = {
    "became": lambda args: Became(_any(args), args["pattern"]),
    "made": lambda args: Made(_any(args), args.get("pattern")),
    "removed": lambda args: Became(_any(args), gone=True),
    "written": lambda args: Written(Reference(str(args["resource"])), args["pattern"]),
    "changed": lambda args: Changed(_any(args), str(args["path"])),
    "condition-became": lambda args: Became(_node(args), _condition(args["type"], status=args["status"])),
    "condition-said": lambda args: Became(
        _node(args),
        _condition(
            args["type"], status=args["status"], reason=args["reason"], message={"$contains": args["message"]}
        ),
    ),
    "taint-added": lambda args: Became(_node(args), _taint(args)),
    "taint-removed": lambda args: Became(_node(args), {"$not": _taint(args)}),
    "no-execute-written": lambda args: Rewritten(
        Reference("nodes"),
        tuple(args["nodes"]),
        "spec.taints",
        {"key": {"$in": [NOT_READY, UNREACHABLE]}, "effect": "NoExecute"},
    ),
    "unschedulable-became": lambda args: Became(
        _node(args), {"spec": {"unschedulable": True if args["value"] else {"$in": [None, False]}}}
    ),
    "condition-types-changed": lambda args: Changed(_node(args), "status.conditions[].type"),
    "boot-id-changed": lambda args: Changed(_node(args), "status.nodeInfo.bootID", lasting=True),
    "last-heartbeat": _last_heartbeat,
    "pod-deletion": lambda args: Became(_pod(args), {"metadata": {"deletionTimestamp": PRESENT}}, gone=True),
    "pod-gone": lambda args: Became(_pod(args), gone=True),
    "pod-created": lambda args: Made(_pod(args)),
    "pod-bound": lambda args: Became(_pod(args), {"spec": {"nodeName": PRESENT}}, born=True),
    "pod-unschedulable": lambda args: Became(_pod(args), _condition("PodScheduled", reason="Unschedulable")),
    "pod-marked": lambda args: Became(
        _pod(args), {"status": {"phase": "Failed", "reason": args["reason"], "message": args["message"]}}
    ),
    "event-reported": lambda args: Written(
        Reference("events"),
        {
            "reason": args["reason"],
            "involvedObject": {"kind": args["kind"], "name": args["name"]},
            "message": {"$prefix": args["message"]},
        },
    ),
    "fault-step": lambda args: Said((("fault", {"id": args["id"], "step": args["step"]}),), told_by_step),
    "all-came": _last_of,
    "next-of": _next_of,
    "recording-began": lambda _args: Said((("begun", {}),)),
    "observed": lambda args: Said((("observed", {"id": args["id"]}),)),
    "action-step": lambda args: Said((("action", {"id": args["id"], "step": args["step"]}),)),
    **witnessed.WORDS,
}
