"""Moments: when something happened in a history.

Each finder is a pure function `(History, args, since_t) -> Occurrence | None` that gives the first one at or
after `since_t`. API writes are timed by the watch's receipt, leases by renewTime put on the harness's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from harness.checks import last_seen, witnessed
from harness.checks.occurrence import Args, Finder, Occurrence
from harness.model.clocks import clock_of, error_s, offset_s
from harness.model.cluster import LEASE_NAMESPACE, condition, condition_status, has_taint
from harness.model.history import Entry, History, Version
from harness.model.judgment import Moment

Predicate = Callable[[Version], bool]


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


def fault_step(fault_id: str, step: str) -> Moment:
    """A step of a fault's protocol, by the names that `harness.model.history` lists."""
    return Moment("fault-step", {"id": fault_id, "step": step})


def find(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence | None:
    """The first occurrence of a moment at or after `since_t` (s). Raises KeyError on an unknown moment."""
    return _FINDERS[moment.name](history, moment.args, since_t)


def resources(moment: Moment) -> tuple[str, ...]:
    """Which watches a moment is read from. Raises KeyError on an unknown moment."""
    return _READ_FROM[moment.name]


def last_state(history: History, moment: Moment) -> str:
    """One line on what was seen last of the object that a moment is about."""
    args = moment.args
    if "by" in args:
        return witnessed.last_told(history, str(args["by"]))
    if "node" in args:
        return last_seen.of_node(history, str(args["node"]))
    if "namespace" in args:
        return last_seen.of_pod(history, str(args["namespace"]), str(args["name"]))
    return ""


def already(history: History, moment: Moment, t: float) -> str:
    """Why a moment cannot come any more after `t`, or nothing: its object is away, or in that state already.

    Without this, that something never comes would be proven by an object that never was.
    """
    if moment.name not in _OF_AN_OBJECT:
        return ""
    seen = [version for version in _object_of(history, moment) if version.t <= t]
    if not seen:
        return f"the object of {moment} was not there yet"
    if seen[-1].deleted:
        return f"the object of {moment} was gone already"
    state = _STATES.get(moment.name)
    return f"{moment} had come already" if state and state(moment.args)(seen[-1]) else ""


def _object_of(history: History, moment: Moment) -> tuple[Version, ...]:
    return (_node if "node" in moment.args else _pod)(history, moment.args)


def _changes(seen: tuple[Version, ...]) -> Iterator[tuple[Version | None, Version]]:
    """Each state with the one before it; none before the first of an object, or of a namesake."""
    before: Version | None = None
    for after in seen:
        same = before is not None and _uid(before) == _uid(after)
        yield before if same else None, after
        before = after


def _uid(version: Version) -> str:
    return str(version.object["metadata"]["uid"])


def _first(
    seen: tuple[Version, ...], holds: Predicate, since_t: float, *, born: bool = False
) -> Version | None:
    """The first change from not holding to holding at or after `since_t`.

    With `born`, an object that the watch saw made in that state counts too; one on a LIST never does.
    """
    for before, after in _changes(seen):
        if after.t < since_t or not holds(after):
            continue
        if before is None and born and not after.listed:
            return after
        if before is not None and not holds(before):
            return after
    return None


def _transitions(seen: tuple[Version, ...], holds: Predicate, since_t: float) -> Occurrence | None:
    found = _first(seen, holds, since_t)
    return Occurrence(found.t) if found else None


def _node(history: History, args: Args) -> tuple[Version, ...]:
    return history.versions("nodes", "", str(args["node"]))


def _pod(history: History, args: Args) -> tuple[Version, ...]:
    return history.versions("pods", str(args["namespace"]), str(args["name"]))


def _condition_became(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_node(history, args), _has_condition(args), since_t)


def _condition_said(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_node(history, args), _says(args), since_t)


def _pod_marked(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_pod(history, args), _is_marked(args), since_t)


def _taint_added(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_node(history, args), _is_tainted(args), since_t)


def _taint_removed(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_node(history, args), _is_untainted(args), since_t)


def _unschedulable_became(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_node(history, args), _is_unschedulable(args), since_t)


def _has_condition(args: Args) -> Predicate:
    return lambda seen: condition_status(seen.object, args["type"]) == args["status"]


def _says(args: Args) -> Predicate:
    def holds(seen: Version) -> bool:
        found = condition(seen.object, args["type"]) or {}
        same = found.get("status") == args["status"] and found.get("reason") == args["reason"]
        return bool(same and args["message"] in str(found.get("message")))

    return holds


def _is_marked(args: Args) -> Predicate:
    def holds(seen: Version) -> bool:
        status = seen.object["status"]
        marked = status.get("reason") == args["reason"] and status.get("message") == args["message"]
        return bool(marked and status.get("phase") == "Failed")

    return holds


def _is_tainted(args: Args) -> Predicate:
    return lambda seen: has_taint(seen.object, args["key"], args["effect"])


def _is_untainted(args: Args) -> Predicate:
    return lambda seen: not has_taint(seen.object, args["key"], args["effect"])


def _is_unschedulable(args: Args) -> Predicate:
    return lambda seen: seen.object["spec"].get("unschedulable", False) is args["value"]


def _is_leaving(_args: Args) -> Predicate:
    return lambda seen: seen.deleted or bool(seen.object["metadata"].get("deletionTimestamp"))


def _is_gone(_args: Args) -> Predicate:
    return lambda seen: seen.deleted


def _is_bound(_args: Args) -> Predicate:
    return lambda seen: bool(seen.object["spec"].get("nodeName"))


def _is_unfit(_args: Args) -> Predicate:
    return lambda seen: (condition(seen.object, "PodScheduled") or {}).get("reason") == "Unschedulable"


def _condition_types_changed(history: History, args: Args, since_t: float) -> Occurrence | None:
    for before, after in _changes(_node(history, args)):
        if before is None or after.t < since_t:
            continue
        changed = sorted(_condition_types(before) ^ _condition_types(after))
        if changed:
            return Occurrence(after.t, {"types": changed})
    return None


def _condition_types(version: Version) -> frozenset[str]:
    return frozenset(entry["type"] for entry in version.object["status"].get("conditions") or ())


def _boot_id_changed(history: History, args: Args, since_t: float) -> Occurrence | None:
    last = ""
    for version in _node(history, args):
        boot = str(version.object["status"].get("nodeInfo", {}).get("bootID", ""))
        if last and boot and boot != last and version.t >= since_t:
            return Occurrence(version.t, {"boot_id": boot})
        last = boot or last
    return None


def _last_heartbeat(history: History, args: Args, since_t: float) -> Occurrence | None:
    before = find(history, Moment.from_json(args["before"]), since_t)
    if before is None:
        return None
    beats = [beat for beat in heartbeats(history, str(args["node"])) if _arrived(beat) <= before.t]
    return max(beats, key=lambda beat: beat.t, default=None)


def long_silence(history: History, anchor: Moment, longer_than_s: float) -> Occurrence | None:
    """The heartbeat that begins the first silence of more than so many seconds, where a moment never came.

    `anchor` is the last heartbeat before that moment. None when it came, or while no silence called for it.
    """
    if find(history, Moment.from_json(anchor.args["before"])) is not None:
        return None
    beats = sorted(heartbeats(history, str(anchor.args["node"])), key=_arrived)
    for beat, following in pairwise(beats):
        if _arrived(following) - _arrived(beat) > longer_than_s:
            return beat
    return beats[-1] if beats else None


def _arrived(beat: Occurrence) -> float:
    """When a heartbeat was in the API (s): one that a cut held up carries an old renewTime."""
    return max(beat.t, float(beat.detail["received_t"]))


def heartbeats(history: History, node: str) -> Iterator[Occurrence]:
    """Every heartbeat of a node: lease renewals by renewTime, changed Ready heartbeats by receipt."""
    yield from lease_renewals(history, node)
    last: str | None = None
    for version in history.versions("nodes", "", node):
        ready = condition(version.object, "Ready")
        beat = str(ready.get("lastHeartbeatTime")) if ready and ready["status"] != "Unknown" else last
        if beat is not None and last is not None and beat != last:
            yield Occurrence(version.t, {"heartbeat": "status", "received_t": version.t})
        last = beat


def lease_renewals(history: History, node: str) -> Iterator[Occurrence]:
    """Every renewal of a node's Lease, at its renewTime on the harness's clock; `error_s` is how wrong that
    may be.
    """
    renewed, error = list(_renewed(history, node)), error_s(history) or 0.0
    for version, told_t in renewed:
        ahead_s, wrong_s = offset_s(history, node, version.t), error
        if ahead_s is None:
            ahead_s, wrong_s = _promptest_s(history, node, version, renewed), _latency_s(history)
        if ahead_s is not None:
            data = {"heartbeat": "lease", "received_t": version.t, "error_s": wrong_s}
            yield Occurrence(told_t - ahead_s, data)


def _renewed(history: History, node: str) -> Iterator[tuple[Version, float]]:
    """The versions of a node's Lease that a renewal made, each with its renewTime by the node's clock."""
    last = ""
    for version in history.versions("leases", LEASE_NAMESPACE, node):
        told = str(version.object["spec"].get("renewTime") or "")
        if told and told != last:
            yield version, history.from_wall(told)
        last = told


def _promptest_s(
    history: History, node: str, version: Version, renewed: Sequence[tuple[Version, float]]
) -> float | None:
    """What a clock that nobody asked was ahead by, but for a watch's latency: none is read before it is
    written.
    """
    clock = clock_of(history, node, version.t)
    return max(
        (
            told_t - seen.t
            for seen, told_t in renewed
            if not seen.listed and clock_of(history, node, seen.t) == clock
        ),
        default=None,
    )


def _latency_s(history: History) -> float:
    """The worst latency of a watch in the recording (s)."""
    told = (entry.data.get("latency_s") or {} for entry in history.of_kind("sentinel"))
    return max((took for latencies in told for took in latencies.values()), default=0.0)


def _pod_deletion(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_pod(history, args), _is_leaving(args), since_t)


def _pod_gone(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_pod(history, args), _is_gone(args), since_t)


def _pod_created(history: History, args: Args, since_t: float) -> Occurrence | None:
    made = (after for before, after in _changes(_pod(history, args)) if before is None)
    return next((Occurrence(pod.t) for pod in made if pod.t >= since_t and not pod.listed), None)


def _pod_bound(history: History, args: Args, since_t: float) -> Occurrence | None:
    bound = _first(_pod(history, args), _is_bound(args), since_t, born=True)
    return Occurrence(bound.t, {"node": bound.object["spec"]["nodeName"]}) if bound else None


def _pod_unschedulable(history: History, args: Args, since_t: float) -> Occurrence | None:
    return _transitions(_pod(history, args), _is_unfit(args), since_t)


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
        if matches and version.t >= since_t and not version.deleted and not version.listed:
            return Occurrence(version.t)
    return None


def _fault_step(history: History, args: Args, since_t: float) -> Occurrence | None:
    for entry in history.of_kind("fault"):
        if entry.data["id"] == args["id"] and entry.data["step"] == args["step"] and entry.t >= since_t:
            return Occurrence(entry.t, _told_by_step(history, entry))
    return None


def _told_by_step(history: History, step: Entry) -> Args:
    """How long the healing took, where the step is its beginning: windows count from its end."""
    if step.data["step"] != "healing":
        return {}
    ends = [
        entry.t - step.t
        for entry in history.of_kind("fault")
        if entry.data["id"] == step.data["id"] and entry.data["step"] == "healed"
    ]
    return {"healing_took_s": round(ends[0], 3)} if ends else {}


_STATES: Mapping[str, Callable[[Args], Predicate]] = {
    "condition-became": _has_condition,
    "condition-said": _says,
    "taint-added": _is_tainted,
    "taint-removed": _is_untainted,
    "unschedulable-became": _is_unschedulable,
    "pod-deletion": _is_leaving,
    "pod-gone": _is_gone,
    "pod-bound": _is_bound,
    "pod-unschedulable": _is_unfit,
    "pod-marked": _is_marked,
}
_OF_AN_OBJECT = frozenset({*_STATES, "condition-types-changed"})

_FINDERS: Mapping[str, Finder] = {
    "condition-became": _condition_became,
    "condition-said": _condition_said,
    "taint-added": _taint_added,
    "taint-removed": _taint_removed,
    "unschedulable-became": _unschedulable_became,
    "condition-types-changed": _condition_types_changed,
    "boot-id-changed": _boot_id_changed,
    "last-heartbeat": _last_heartbeat,
    "pod-deletion": _pod_deletion,
    "pod-gone": _pod_gone,
    "pod-created": _pod_created,
    "pod-bound": _pod_bound,
    "pod-unschedulable": _pod_unschedulable,
    "pod-marked": _pod_marked,
    "event-reported": _event_reported,
    "fault-step": _fault_step,
    **witnessed.FINDERS,
}

_READ_FROM: Mapping[str, tuple[str, ...]] = {
    "condition-became": ("nodes",),
    "condition-said": ("nodes",),
    "taint-added": ("nodes",),
    "taint-removed": ("nodes",),
    "unschedulable-became": ("nodes",),
    "condition-types-changed": ("nodes",),
    "boot-id-changed": ("nodes",),
    "last-heartbeat": ("leases", "nodes"),
    "pod-deletion": ("pods",),
    "pod-gone": ("pods",),
    "pod-created": ("pods",),
    "pod-bound": ("pods",),
    "pod-unschedulable": ("pods",),
    "pod-marked": ("pods",),
    "event-reported": ("events",),
    "fault-step": (),
    **dict.fromkeys(witnessed.FINDERS, ()),
}
