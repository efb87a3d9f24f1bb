"""Moments: when something happened in a history.

Each finder is a pure function `(History, args, since_t) -> Occurrence | None` that gives the first one at or after
`since_t`. API writes are timed by the watch's receipt, leases by renewTime put on the harness's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.model.cluster import LEASE_NAMESPACE, condition, condition_status, has_taint
from harness.model.history import History, Version
from harness.model.judgment import Moment

Json = Any
Args = Mapping[str, Json]


@dataclass(frozen=True)
class Occurrence:
    """When a moment was, and what it tells of itself (windows may depend on it)."""

    t: float
    detail: Args = field(default_factory=dict)


Finder = Callable[[History, Args, float], Occurrence | None]


def condition_became(node: str, type_: str, status: str) -> Moment:
    """A Node's condition changes to a status."""
    return Moment("condition-became", {"node": node, "type": type_, "status": status})


def taint_added(node: str, key: str, effect: str) -> Moment:
    """A Node that lacked the taint carries it."""
    return Moment("taint-added", {"node": node, "key": key, "effect": effect})


def taint_removed(node: str, key: str, effect: str) -> Moment:
    """A Node that carried the taint lacks it."""
    return Moment("taint-removed", {"node": node, "key": key, "effect": effect})


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


def pod_deletion(namespace: str, name: str) -> Moment:
    """A pod's deletion is asked for (deletionTimestamp set), or the pod is gone."""
    return Moment("pod-deletion", {"namespace": namespace, "name": name})


def pod_gone(namespace: str, name: str) -> Moment:
    """A pod's object is removed."""
    return Moment("pod-gone", {"namespace": namespace, "name": name})


def pod_created(namespace: str, name: str) -> Moment:
    """A pod's object is there."""
    return Moment("pod-created", {"namespace": namespace, "name": name})


def pod_bound(namespace: str, name: str) -> Moment:
    """A pod gets its spec.nodeName."""
    return Moment("pod-bound", {"namespace": namespace, "name": name})


def pod_unschedulable(namespace: str, name: str) -> Moment:
    """The scheduler tried a pod and found no node: PodScheduled=False, reason Unschedulable."""
    return Moment("pod-unschedulable", {"namespace": namespace, "name": name})


def event_reported(reason: str, kind: str, name: str, message: str) -> Moment:
    """A Kubernetes Event with this reason about this object, its message starting so."""
    return Moment("event-reported", {"reason": reason, "kind": kind, "name": name, "message": message})


def fault_step(fault_id: str, step: str) -> Moment:
    """A step of a fault's protocol: `began` (proven since), `healed` (asked for) and so on."""
    return Moment("fault-step", {"id": fault_id, "step": step})


def find(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence | None:
    """The first occurrence of a moment at or after `since_t` (s). Raises KeyError on an unknown moment."""
    return _FINDERS[moment.name](history, moment.args, since_t)


def resources(moment: Moment) -> tuple[str, ...]:
    """Which watches a moment is read from."""
    if moment.name == "last-heartbeat":
        return ("leases", "nodes")
    if moment.name.startswith("pod-"):
        return ("pods",)
    if moment.name == "event-reported":
        return ("events",)
    return () if moment.name == "fault-step" else ("nodes",)


def last_state(history: History, moment: Moment) -> str:
    """One line on what was seen last of the object that a moment is about."""
    args = moment.args
    if "node" in args:
        return _describe_node(history, str(args["node"]))
    if "namespace" in args:
        return _describe_pod(history, str(args["namespace"]), str(args["name"]))
    return ""


def _transitions(
    seen: tuple[Version, ...], holds: Callable[[Version], bool], since_t: float
) -> Occurrence | None:
    """The first change from not holding to holding at or after `since_t`; a first state is no change."""
    for before, after in zip(seen, seen[1:], strict=False):
        if after.t >= since_t and holds(after) and not holds(before):
            return Occurrence(after.t)
    return None


def _node(history: History, args: Args) -> tuple[Version, ...]:
    return history.versions("nodes", "", str(args["node"]))


def _pod(history: History, args: Args) -> tuple[Version, ...]:
    return history.versions("pods", str(args["namespace"]), str(args["name"]))


def _condition_became(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(
        _node(history, args),
        lambda seen: condition_status(seen.object, args["type"]) == args["status"],
        since_t,
    )


def _taint_added(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(
        _node(history, args), lambda seen: has_taint(seen.object, args["key"], args["effect"]), since_t
    )


def _taint_removed(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(
        _node(history, args), lambda seen: not has_taint(seen.object, args["key"], args["effect"]), since_t
    )


def _unschedulable_became(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(
        _node(history, args),
        lambda seen: seen.object["spec"].get("unschedulable", False) is args["value"],
        since_t,
    )


def _condition_types_changed(history: History, args: Args, since_t: float) -> Occurrence | None:
    seen = _node(history, args)
    for before, after in zip(seen, seen[1:], strict=False):
        if after.t >= since_t and _condition_types(before) != _condition_types(after):
            added = sorted(_condition_types(before) ^ _condition_types(after))
            return Occurrence(after.t, {"types": added})
    return None


def _condition_types(version: Version) -> frozenset[str]:
    return frozenset(entry["type"] for entry in version.object["status"].get("conditions") or ())


def _last_heartbeat(history: History, args: Args, since_t: float) -> Occurrence | None:
    before = find(history, Moment.from_json(args["before"]), since_t)
    if before is None:
        return None
    beats = [beat for beat in heartbeats(history, str(args["node"])) if beat.t <= before.t]
    return max(beats, key=lambda beat: beat.t, default=None)


def heartbeats(history: History, node: str) -> Iterator[Occurrence]:
    """Every heartbeat of a node: lease renewals by renewTime, changed Ready heartbeats by receipt."""
    yield from lease_renewals(history, node)
    last: str | None = None
    for version in history.versions("nodes", "", node):
        ready = condition(version.object, "Ready")
        beat = str(ready.get("lastHeartbeatTime")) if ready and ready["status"] != "Unknown" else last
        if beat is not None and last is not None and beat != last:
            yield Occurrence(version.t, {"heartbeat": "status"})
        last = beat


def lease_renewals(history: History, node: str) -> Iterator[Occurrence]:
    """Every renewal of a node's Lease, at its renewTime on the harness's clock."""
    offset = float(history.begun.get("clock_offset_s", {}).get(node, 0.0))
    last = ""
    for version in history.versions("leases", LEASE_NAMESPACE, node):
        renewed = str(version.object["spec"].get("renewTime") or "")
        if renewed and renewed != last:
            yield Occurrence(history.from_wall(renewed) - offset, {"heartbeat": "lease"})
        last = renewed


def _pod_deletion(history: History, args: Args, since_t: float) -> Occurrence | None:
    for version in _pod(history, args):
        if version.t >= since_t and (version.deleted or version.object["metadata"].get("deletionTimestamp")):
            return Occurrence(version.t)
    return None


def _pod_gone(history: History, args: Args, since_t: float) -> Occurrence | None:
    return next(
        (Occurrence(seen.t) for seen in _pod(history, args) if seen.deleted and seen.t >= since_t), None
    )


def _pod_created(history: History, args: Args, since_t: float) -> Occurrence | None:
    return next((Occurrence(seen.t) for seen in _pod(history, args) if seen.t >= since_t), None)


def _pod_bound(history: History, args: Args, since_t: float) -> Occurrence | None:
    for version in _pod(history, args):
        if version.t >= since_t and version.object["spec"].get("nodeName"):
            return Occurrence(version.t, {"node": version.object["spec"]["nodeName"]})
    return None


def _pod_unschedulable(history: History, args: Args, since_t: float) -> Occurrence | None:
    for version in _pod(history, args):
        scheduled = condition(version.object, "PodScheduled")
        if version.t >= since_t and scheduled and scheduled.get("reason") == "Unschedulable":
            return Occurrence(version.t)
    return None


def _event_reported(history: History, args: Args, since_t: float) -> Occurrence | None:
    for version in history.all_versions("events"):
        event = version.object
        about = event.get("involvedObject", {})
        matches = (
            event.get("reason") == args["reason"]
            and about.get("kind") == args["kind"]
            and about.get("name") == args["name"]
            and str(event.get("message", "")).startswith(args["message"])
        )
        if matches and version.t >= since_t and not version.deleted:
            return Occurrence(version.t)
    return None


def _fault_step(history: History, args: Args, since_t: float) -> Occurrence | None:
    for entry in history.of_kind("fault"):
        if entry.data["id"] == args["id"] and entry.data["step"] == args["step"] and entry.t >= since_t:
            return Occurrence(entry.t)
    return None


def _describe_node(history: History, name: str) -> str:
    seen = history.versions("nodes", "", name)
    if not seen:
        return f"node {name}: never seen"
    node = seen[-1].object
    taints = (
        ", ".join(f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()) or "none"
    )
    unschedulable = bool(node["spec"].get("unschedulable"))
    return f"node {name}: Ready={condition_status(node, 'Ready')}, taints {taints}, unschedulable {unschedulable}"


def _describe_pod(history: History, namespace: str, name: str) -> str:
    seen = history.versions("pods", namespace, name)
    if not seen:
        return f"pod {name}: never seen"
    pod, deleted = seen[-1].object, seen[-1].deleted
    state = "removed" if deleted else f"phase {pod['status'].get('phase')}"
    return f"pod {name}: {state}, node {pod['spec'].get('nodeName')}, deletion {pod['metadata'].get('deletionTimestamp')}"


_FINDERS: Mapping[str, Finder] = {
    "condition-became": _condition_became,
    "taint-added": _taint_added,
    "taint-removed": _taint_removed,
    "unschedulable-became": _unschedulable_became,
    "condition-types-changed": _condition_types_changed,
    "last-heartbeat": _last_heartbeat,
    "pod-deletion": _pod_deletion,
    "pod-gone": _pod_gone,
    "pod-created": _pod_created,
    "pod-bound": _pod_bound,
    "pod-unschedulable": _pod_unschedulable,
    "event-reported": _event_reported,
    "fault-step": _fault_step,
}
