"""Moments: the words for when something happened in a history, each of one shape.

A moment is stored by name and arguments; today's code says what they mean. A new word is a constructor and
its line in `_WORDS`; what `became`, `made`, `removed`, `written` and `changed` can say needs no word.
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
    """An object of any recorded resource comes to match a pattern (`nodeproof.model.pattern`)."""
    return Moment("became", {"resource": resource, "namespace": namespace, "name": name, "pattern": pattern})


def made(resource: str, name: str, namespace: str = "", like: Json = None) -> Moment:
    """An object of any recorded resource is made; with `like`, matching that pattern from the beginning."""
    told = {} if like is None else {"pattern": like}
    return Moment("made", {"resource": resource, "namespace": namespace, "name": name, **told})


def removed(resource: str, name: str, namespace: str = "") -> Moment:
    """An object of any recorded resource is removed."""
    return Moment("removed", {"resource": resource, "namespace": namespace, "name": name})


def written(resource: str, pattern: Json) -> Moment:
    """Any object of a recorded resource that matches a pattern is written."""
    return Moment("written", {"resource": resource, "pattern": pattern})


def changed(resource: str, name: str, path: str, namespace: str = "") -> Moment:
    """What stands at a path of an object, such as `status.nodeInfo.bootID`, becomes another."""
    return Moment("changed", {"resource": resource, "namespace": namespace, "name": name, "path": path})


def condition_became(node: str, type_: str, status: str) -> Moment:
    """A Node's condition changes to a status."""
    return Moment("condition-became", {"node": node, "type": type_, "status": status})


def condition_said(node: str, type_: str, status: str, reason: str, message: str) -> Moment:
    """A Node's condition comes to have a status with this reason, its message holding this text."""
    told = {"status": status, "reason": reason, "message": message}
    return Moment("condition-said", {"node": node, "type": type_, **told})


def taint_added(node: str, key: str, effect: str) -> Moment:
    """A Node that lacked the taint carries it."""
    return Moment("taint-added", {"node": node, "key": key, "effect": effect})


def taint_removed(node: str, key: str, effect: str) -> Moment:
    """A Node that carried the taint lacks it."""
    return Moment("taint-removed", {"node": node, "key": key, "effect": effect})


def untainted(node: str, effect: str) -> Moment:
    """A Node has no taint of this effect any more that says it is not-ready or unreachable; it may have had
    one after the other (pkg/controller/nodelifecycle, taintKeyToNodeConditionMap).
    """
    lost = {"key": {"$in": [NOT_READY, UNREACHABLE]}, "effect": effect}
    return became("nodes", node, {"spec": {"taints": {"$not": [lost]}}})


def no_execute_written(*nodes: str) -> Moment:
    """On one of these Nodes the taint that evicts, not-ready or unreachable, is written: it appears, or its
    timeAdded moves. Each write takes a token of the zone's rate limiter, and one node may get two
    (pkg/controller/nodelifecycle: doNoExecuteTaintingPass; AddOrUpdateTaint compares timeAdded).
    """
    return Moment("no-execute-written", {"nodes": list(nodes)})


def last_heartbeat(node: str, before: Moment) -> Moment:
    """The node's last heartbeat of either kind, lease renewal or status, before a moment."""
    return Moment("last-heartbeat", {"node": node, "before": before.to_json()})


def cordoned(node: str) -> Moment:
    """spec.unschedulable becomes true."""
    return Moment("unschedulable-became", {"node": node, "value": True})


def uncordoned(node: str) -> Moment:
    """spec.unschedulable is gone."""
    return Moment("unschedulable-became", {"node": node, "value": False})


def conditions_changed(node: str) -> Moment:
    """The set of a Node's condition types becomes another."""
    return Moment("condition-types-changed", {"node": node})


def boot_id_changed(node: str) -> Moment:
    """A Node reports another boot id than the last one that it reported."""
    return Moment("boot-id-changed", {"node": node})


def pod_deletion(namespace: str, name: str) -> Moment:
    """A pod's deletion is asked for (deletionTimestamp set), or the pod is gone."""
    return Moment("pod-deletion", {"namespace": namespace, "name": name})


def pod_gone(namespace: str, name: str) -> Moment:
    """A pod's object is removed."""
    return Moment("pod-gone", {"namespace": namespace, "name": name})


def pod_created(namespace: str, name: str) -> Moment:
    """A pod's object is made, as the watch saw it; one on a LIST is older than the recording."""
    return Moment("pod-created", {"namespace": namespace, "name": name})


def pod_bound(namespace: str, name: str) -> Moment:
    """A pod gets its spec.nodeName."""
    return Moment("pod-bound", {"namespace": namespace, "name": name})


def pod_unschedulable(namespace: str, name: str) -> Moment:
    """The scheduler tried a pod and found no node: PodScheduled=False, reason Unschedulable."""
    return Moment("pod-unschedulable", {"namespace": namespace, "name": name})


def pod_marked(namespace: str, name: str, reason: str, message: str) -> Moment:
    """A pod's status comes to be Failed, with this reason and this message."""
    args = {"namespace": namespace, "name": name, "reason": reason, "message": message}
    return Moment("pod-marked", args)


def event_reported(reason: str, kind: str, name: str, message: str) -> Moment:
    """A Kubernetes Event with this reason about this object, its message starting so."""
    return Moment("event-reported", {"reason": reason, "kind": kind, "name": name, "message": message})


def all_came(*each: Moment) -> Moment:
    """The last of these, once each has come for the first time."""
    return Moment("all-came", {"each": [moment.to_json() for moment in each]})


def next_of(moment: Moment, after: Moment) -> Moment:
    """A moment's first occurrence since another moment: what came before is not meant."""
    return Moment("next-of", {"of": moment.to_json(), "after": after.to_json()})


def recording_began() -> Moment:
    """The recording began."""
    return Moment("recording-began", {})


def fault_step(fault_id: str, step: str) -> Moment:
    """A step of a fault's protocol, by the names that `nodeproof.model.history` lists."""
    return Moment("fault-step", {"id": fault_id, "step": step})


def shape(moment: Moment) -> Shape:
    """What a moment is. Raises KeyError on one that this version does not know."""
    return _WORDS[moment.name](moment.args)


def find(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence | None:
    """The first occurrence of a moment at or after `since_t` (s). Raises KeyError on an unknown moment."""
    return shapes.find(history, shape(moment), since_t)


def each(history: History, moment: Moment) -> Iterator[Occurrence]:
    """Every occurrence of a moment. Raises LookupError on one that is found once, or unknown."""
    about = shape(moment)
    if isinstance(about, Computed):
        raise LookupError(f"{moment} cannot be counted")
    return about.each(history)


def resources(moment: Moment) -> tuple[str, ...]:
    """Which watches a moment is read from. Raises KeyError on an unknown moment."""
    return shapes.resources(shape(moment))


def parts(moment: Moment) -> Iterator[Moment]:
    """The moment, or all that it is made of."""
    about = shape(moment)
    if not isinstance(about, Computed) or not about.parts:
        yield moment
        return
    for part in about.parts:
        yield from parts(part)


def sought(history: History, moment: Moment, time: Span) -> Iterator[tuple[Moment, Span]]:
    """The moment, or all that it is made of, each with the time (s) in which it was looked for."""
    about = shape(moment)
    if not isinstance(about, Computed) or not about.parts:
        yield moment, time
        return
    since_begin = Span(history.began_t, time.until_t)
    if moment.name != "next-of":
        for part in about.parts:
            yield from sought(history, part, since_begin)
        return
    of, after = about.parts
    start = find(history, after)
    yield from sought(history, after, Span(history.began_t, start.t) if start else since_begin)
    if start is not None:
        yield from sought(history, of, Span(max(start.t, time.since_t), time.until_t))


def paths(moment: Moment) -> Mapping[str, frozenset[str]]:
    """The fields that a moment's pattern or path names, by resource."""
    return shapes.paths(shape(moment))


def find_state(history: History, moment: Moment, since_t: float) -> Occurrence | None:
    """The first occurrence of a moment at or after `since_t` (s), or of an object that is made in the state
    that it leads to. Raises KeyError on an unknown moment.
    """
    return shapes.find_state(history, shape(moment), since_t)


def unable(history: History, moment: Moment, within: Span) -> str:
    """Why a moment cannot have come at each time of a span, or nothing."""
    return _of(moment, shapes.unable(history, shape(moment), within))


def never_there(history: History, moment: Moment, until_t: float) -> str:
    """Which object of a moment was not there up to a time (s), or nothing."""
    return _of(moment, shapes.never_there(history, shape(moment), until_t))


def _of(moment: Moment, why: str) -> str:
    return f"{moment}: {why}" if why else ""


def last_state(history: History, moment: Moment) -> str:
    """One line on what was seen last of the object that a moment is about."""
    if "by" in moment.args:
        return witnessed.last_told(history, str(moment.args["by"]))
    about = shape(moment)
    if isinstance(about, Computed) and "node" in moment.args:
        return last_seen.of_node(history, str(moment.args["node"]))
    if isinstance(about, Said | Computed) or not about.of.name:
        return ""
    return last_seen.of(history, about.of.resource, about.of.namespace, about.of.name)


def long_silence(history: History, anchor: Moment, longer_than_s: float) -> Occurrence | None:
    """The heartbeat that begins the first silence of more than so many seconds, where a moment never came.

    `anchor` is the last heartbeat before that moment. None when it came, or where the node has no heartbeat.
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


def _condition(type_: str, **told: Json) -> Json:
    return {"status": {"conditions": [{"type": type_, **told}]}}


def _taint(args: Args) -> Json:
    return {"spec": {"taints": [{"key": args["key"], "effect": args["effect"]}]}}


def _last_heartbeat(args: Args) -> Computed:
    def last(history: History, since_t: float) -> Occurrence | None:
        before = find(history, Moment.from_json(args["before"]), since_t)
        return heartbeats.last_before(history, str(args["node"]), before.t) if before else None

    return Computed(("leases", "nodes"), last)


def _all_came(args: Args) -> Computed:
    each = [Moment.from_json(told) for told in args["each"]]

    def last(history: History, since_t: float) -> Occurrence | None:
        came = [find(history, moment) for moment in each]
        times = [found.t for found in came if found is not None]
        is_all = times and len(times) == len(each) and max(times) >= since_t
        return Occurrence(max(times)) if is_all else None

    def one_is_unable(history: History, within: Span) -> str:
        return next(filter(None, (unable(history, moment, within) for moment in each)), "")

    watched = tuple({name for moment in each for name in resources(moment)})
    return Computed(watched, last, tuple(each), one_is_unable)


def _next_of(args: Args) -> Computed:
    of, after = Moment.from_json(args["of"]), Moment.from_json(args["after"])

    def following(history: History, since_t: float) -> Occurrence | None:
        start = find(history, after)
        return None if start is None else find(history, of, max(start.t, since_t))

    def is_unable(history: History, within: Span) -> str:
        start = find(history, after)
        if start is None or start.t > within.since_t:
            return f"{after} had not come yet"
        return unable(history, of, within)

    return Computed(tuple({*resources(of), *resources(after)}), following, (of, after), is_unable)


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
    "all-came": _all_came,
    "next-of": _next_of,
    "recording-began": lambda _args: Said((("begun", {}),)),
    "observed": lambda args: Said((("observed", {"id": args["id"]}),)),
    "action-step": lambda args: Said((("action", {"id": args["id"], "step": args["step"]}),)),
    **witnessed.WORDS,
}
