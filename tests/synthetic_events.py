"""Entries for a recording in which a moment occurs at some time, as another cluster would write them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from nodeproof.checks import moments
from nodeproof.model.history import Entry, History, Version
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import PRESENT, Json, matches

_IDENTITY = ("namespace", "name", "labels")


def insert_moment(history: History, moment: Moment, t: float) -> History:
    """Return a recording in which a moment occurs at `t` (s)."""
    return History.of([*history.entries, written_then(history, _entry(history, moment, t))])


def written_then(history: History, entry: Entry) -> Entry:
    """Return a watch event written at its delivery: the API would not report another time."""
    meta = entry.data["object"]["metadata"] if entry.kind == "watch" else {}
    if not meta.keys() & {"managedFields", "deletionTimestamp"}:
        return entry
    then = {name: value for name, value in meta.items() if name != "managedFields"}
    if "deletionTimestamp" in then:
        removal_t = entry.t + float(then.get("deletionGracePeriodSeconds") or 0)
        removal = datetime.fromtimestamp(removal_t + history.wall_offset_s(entry.t), UTC)
        then["deletionTimestamp"] = removal.strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(entry, data={**entry.data, "object": {**entry.data["object"], "metadata": then}})


def _entry(history: History, moment: Moment, t: float) -> Entry:
    if moment.name == "told":
        return Entry(t, "told", {"by": moment.args["by"], "what": moment.args["what"]})
    if moment.name == "event-reported":
        return Entry(t, "watch", {"resource": "events", "type": "ADDED", "object": _event(moment.args)})
    if moment.name == "written":
        written = _like(_last_such(history, moment, t), moment.args["pattern"])
        data = {"resource": moment.args["resource"], "type": "MODIFIED", "object": written}
        return Entry(t, "watch", data)
    (resource,) = moments.resources(moment)
    if moment.name == "made":
        another = _like(_last_before(history, resource, moment, t).object, {"metadata": {"uid": "put-in"}})
        return Entry(t, "watch", {"resource": resource, "type": "ADDED", "object": another})
    if moment.name == "became":
        became = _like(_last_before(history, resource, moment, t).object, moment.args["pattern"])
        return Entry(t, "watch", {"resource": resource, "type": "MODIFIED", "object": became})
    changed = copy.deepcopy(dict(_last_before(history, resource, moment, t).object))
    kind = CHANGES[moment.name](changed, moment.args) or "MODIFIED"
    return Entry(t, "watch", {"resource": resource, "type": kind, "object": changed})


def _last_before(history: History, resource: str, moment: Moment, t: float) -> Version:
    args = moment.args
    versions = history.versions(resource, args.get("namespace", ""), args.get("node", args.get("name")))
    return [version for version in versions if version.t <= t][-1]


def _last_such(history: History, moment: Moment, t: float) -> Json:
    """Return the last object with the names and labels of a pattern."""
    wanted = {name: value for name, value in moment.args["pattern"]["metadata"].items() if name in _IDENTITY}
    versions = history.all_versions(str(moment.args["resource"]))
    return [old.object for old in versions if old.t <= t and matches({"metadata": wanted}, old.object)][-1]


def _like(value: Json, pattern: Json) -> Json:
    """Return a value, changed as little as a pattern requires."""
    if pattern == PRESENT:
        return value or "put-in"
    if isinstance(pattern, Mapping):
        before = value if isinstance(value, Mapping) else {}
        return {**before, **{name: _like(before.get(name), wanted) for name, wanted in pattern.items()}}
    if not isinstance(pattern, list):
        return pattern
    others = [
        entry for entry in value or () if all(entry.get("type") != wanted["type"] for wanted in pattern)
    ]
    return [*others, *(_like(None, wanted) for wanted in pattern)]


def _event(args: Mapping[str, Json]) -> Json:
    meta = {"name": "put-in", "namespace": "default", "uid": "put-in", "resourceVersion": "1"}
    about = {"kind": args["kind"], "name": args["name"]}
    return {"metadata": meta, "involvedObject": about, "reason": args["reason"], "message": args["message"]}


def _set_condition(node: Json, args: Mapping[str, Json]) -> None:
    for condition in node["status"]["conditions"]:
        if condition["type"] == args["type"]:
            condition["status"] = args["status"]


def _add_condition(node: Json, _args: Mapping[str, Json]) -> None:
    node["status"]["conditions"].append({"type": "PutIn", "status": "True"})


def _add_taint(node: Json, args: Mapping[str, Json]) -> None:
    taint = {"key": args["key"], "effect": args["effect"]}
    node["spec"]["taints"] = [*(node["spec"].get("taints") or ()), taint]


def _remove_taint(node: Json, args: Mapping[str, Json]) -> None:
    taint = (args["key"], args["effect"])
    taints = node["spec"].get("taints") or ()
    node["spec"]["taints"] = [entry for entry in taints if (entry["key"], entry["effect"]) != taint]


def _leave(pod: Json, _args: Mapping[str, Json]) -> None:
    pod["metadata"]["deletionTimestamp"] = "now"


def _bind(pod: Json, _args: Mapping[str, Json]) -> None:
    pod["spec"]["nodeName"] = "put-in"


CHANGES: Mapping[str, Callable[[Json, Mapping[str, Json]], str | None]] = {
    "condition-became": _set_condition,
    "condition-types-changed": _add_condition,
    "taint-added": _add_taint,
    "taint-removed": _remove_taint,
    "pod-deletion": _leave,
    "pod-bound": _bind,
    "pod-gone": lambda _pod, _args: "DELETED",
}
