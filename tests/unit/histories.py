"""Realistic histories for unit tests: a small cluster with resourceVersions and a fence."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from nodeproof.model.cluster import LEASE_NAMESPACE, UNREACHABLE, Calibration, Configuration
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import Lost

WALL_OFFSET_S = 1_700_000_000.0
RESOURCES = ("nodes", "pods", "leases", "events")
NAMESPACE = "nodeproof"
NODE, OTHER, POD = "node-1", "node-2", "pod-1"
"""The faulted node, the sentinel's node, and the pod on the faulted node."""
CUT_T, GRACE_S, PERIOD_S, RENEW_S, TOLERATION_S = 20.0, 12.0, 1.0, 2.0, 10.0


def reported(
    grace_s: float = GRACE_S,
    period_s: float = PERIOD_S,
    rate: float = 0.5,
    renew_s: float = RENEW_S,
    toleration_s: float = TOLERATION_S,
) -> Mapping[str, Json]:
    """Return reported settings for the symbols G, P, E, R and T."""
    return {
        "kube-controller-manager": {
            "NodeLifecycleController": {"NodeMonitorGracePeriod": f"{grace_s}s", "NodeEvictionRate": rate},
            "KubeCloudShared": {"NodeMonitorPeriod": f"{period_s}s"},
        },
        "kubelet": {"nodeLeaseDurationSeconds": 4 * renew_s},
        "kube-apiserver": {"DefaultTolerationSeconds": {"Unreachable": toleration_s}},
    }


def configuration(**changed: Json) -> Configuration:
    """Return a configuration like the profile `fast`; the slack is 0.24 s unless the history adds some."""
    settings: dict[str, Json] = {
        "kubernetes_version": "v1.36.3",
        "lab": "process",
        "profile": "fast",
        "slack_limit_s": 1.0,
        "reported": reported(),
        "negative_wait_s": 5.0,
        "calibration": Calibration(watch_latency_s=0.02),
    }
    return Configuration(**{**settings, **changed})


def wall(t: float) -> str:
    """Return the API timestamp, with microseconds, of a monotonic time."""
    return datetime.fromtimestamp(t + WALL_OFFSET_S, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second(t: float) -> str:
    """Return the API's timestamp, in whole seconds, of a monotonic time."""
    return f"{wall(math.floor(t))[:19]}Z"


class Story:
    """Records a cluster's actions in order; every change is a watch event with its resourceVersion.

    Each action returns the story, so that short ones are one expression.
    """

    def __init__(
        self,
        nodes: Iterable[str] = (NODE, OTHER),
        t: float = 0.0,
        resources: Iterable[str] = RESOURCES,
        renewed_t: float = -1.0,
        status_t: float = -5.0,
    ) -> None:
        self.entries: list[Entry] = []
        self.rv = 100
        self.resources = tuple(resources)
        self._live: dict[str, dict[tuple[str, str], Json]] = {name: {} for name in self.resources}
        self._sentinels = 0
        self._uids = 0
        names = tuple(nodes)
        self.say(t, "begun", wall_offset_s=WALL_OFFSET_S, nodes=list(names), sentinel_node=OTHER)
        for name in names:
            self.say(t, "clock", node=name, offset_s=0.0, error_s=0.0)
            self._put("nodes", "", name, _node_body(status_t))
            self._put("leases", LEASE_NAMESPACE, name, {"spec": {"renewTime": wall(t + renewed_t)}})
        for resource in ("pods", "leases", "events", "configmaps"):
            self._put(resource, _namespace(resource), "sentinel", {"spec": {}, "status": {}})
        for resource in self.resources:
            self.list(t, resource)

    def say(self, t: float, kind: str, **data: Json) -> Story:
        """Append an entry."""
        self.entries.append(Entry(t, kind, data))
        return self

    def history(self) -> History:
        """Return the history so far."""
        return History.of(self.entries)

    def list(self, t: float, resource: str) -> Story:
        """Add a LIST of a resource, as at the beginning and after a gap."""
        items = copy.deepcopy(list(self._live[resource].values()))
        self.say(t, "listed", resource=resource, rv=str(self.rv), items=items)
        return self

    def change(
        self, t: float, resource: str, namespace: str, name: str, body: Json, *, is_watched: bool = True
    ) -> Story:
        """Write an object; `is_watched` is whether the watch delivers it."""
        if resource not in self._live:
            return self
        type_ = "MODIFIED" if (namespace, name) in self._live[resource] else "ADDED"
        obj = self._put(resource, namespace, name, body)
        if is_watched:
            self.say(t, "watch", resource=resource, type=type_, object=copy.deepcopy(obj))
        return self

    def remove(self, t: float, resource: str, namespace: str, name: str, *, is_watched: bool = True) -> Story:
        """Remove an object; the event carries the resourceVersion of the removal."""
        obj = self._live[resource].pop((namespace, name))
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        if is_watched:
            self.say(t, "watch", resource=resource, type="DELETED", object=obj)
        return self

    def object(self, resource: str, namespace: str, name: str) -> Json:
        """Return a copy of the current object."""
        return copy.deepcopy(self._live[resource][namespace, name])

    def alter(
        self,
        t: float,
        resource: str,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        *,
        is_watched: bool = True,
    ) -> Story:
        """Write an object once `change` has altered it."""
        obj = self.object(resource, namespace, name)
        change(obj)
        return self.change(t, resource, namespace, name, obj, is_watched=is_watched)

    def alter_node(
        self, t: float, change: Callable[[Json], Json], node: str = NODE, *, is_watched: bool = True
    ) -> Story:
        """Write a Node once `change` has altered it."""
        return self.alter(t, "nodes", "", node, change, is_watched=is_watched)

    def alter_pod(
        self, t: float, change: Callable[[Json], Json], name: str = POD, *, is_watched: bool = True
    ) -> Story:
        """Write a pod once `change` has altered it."""
        return self.alter(t, "pods", NAMESPACE, name, change, is_watched=is_watched)

    def renew(self, t: float, node: str = NODE, received_t: float | None = None) -> Story:
        """Renew a kubelet's Lease."""
        body = {"spec": {"renewTime": wall(t)}}
        received_t = t + 0.01 if received_t is None else received_t
        return self.change(received_t, "leases", LEASE_NAMESPACE, node, body)

    def renewals(
        self, since_t: float, until_t: float, node: str = NODE, period_s: float = RENEW_S * 1.02
    ) -> Story:
        """Renew a kubelet's Lease periodically."""
        t = since_t
        while t <= until_t:
            self.renew(t, node)
            t += period_s
        return self

    def status(self, t: float, node: str = NODE) -> Story:
        """Post a kubelet's status: a changed Ready heartbeat."""
        return self._set_condition(t, node, "Ready", status="True", lastHeartbeatTime=wall(t))

    def condition(
        self,
        t: float,
        status: str,
        node: str = NODE,
        type_: str = "Ready",
        reason: str = "",
        message: str = "",
    ) -> Story:
        """Change a condition."""
        return self._set_condition(t, node, type_, status=status, reason=reason, message=message)

    def _set_condition(self, t: float, node: str, type_: str, **fields: str) -> Story:
        def change(obj: Json) -> None:
            conditions = obj["status"]["conditions"]
            condition = next((entry for entry in conditions if entry["type"] == type_), None)
            if condition is None:
                condition = {"type": type_, "lastHeartbeatTime": wall(0)}
                conditions.append(condition)
            condition.update({"reason": "", "message": "", **fields})

        return self.alter_node(t, change, node)

    def taint(
        self,
        t: float,
        key: str = UNREACHABLE,
        effect: str = "NoExecute",
        node: str = NODE,
        *,
        is_watched: bool = True,
    ) -> Story:
        """Taint a node."""
        taint = {"key": key, "effect": effect}
        return self.alter_node(
            t, lambda obj: obj["spec"].setdefault("taints", []).append(taint), node, is_watched=is_watched
        )

    def untaint(self, t: float, node: str = NODE) -> Story:
        """Remove a node's taints."""
        return self.alter_node(t, lambda obj: obj["spec"].pop("taints", None), node)

    def boot(self, t: float, boot_id: str, node: str = NODE) -> Story:
        """Report the boot id of a machine."""
        return self.alter_node(t, lambda obj: obj["status"].update(nodeInfo={"bootID": boot_id}), node)

    def cordon(self, t: float, node: str = NODE, *, on: bool = True) -> Story:
        """Cordon or uncordon a node."""
        if on:
            return self.alter_node(t, lambda obj: obj["spec"].update(unschedulable=True), node)
        return self.alter_node(t, lambda obj: obj["spec"].pop("unschedulable", None), node)

    def pod(self, t: float, name: str = POD, node: str = "") -> Story:
        """Create a pod, bound from the start if `node` is given."""
        spec = {"nodeName": node} if node else {}
        return self.change(t, "pods", NAMESPACE, name, {"spec": spec, "status": {"phase": "Pending"}})

    def bind(self, t: float, name: str = POD, node: str = NODE) -> Story:
        """Bind a pod."""
        return self.alter_pod(t, lambda obj: obj["spec"].update(nodeName=node), name)

    def unfit(self, t: float, name: str = POD) -> Story:
        """Mark a pod as unschedulable."""
        unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return self.alter_pod(t, lambda obj: obj["status"].update(conditions=[unfit]), name)

    def mark(self, t: float, reason: str, message: str, phase: str = "Failed", name: str = POD) -> Story:
        """Report in a pod's status why the pod has ended."""
        status = {"phase": phase, "reason": reason, "message": message}
        return self.alter_pod(t, lambda obj: obj["status"].update(status), name)

    def tell(self, what: str, *times: float, by: str = POD) -> Story:
        """Record messages of a probe pod."""
        for t in times:
            self.say(t, "told", by=by, what=what)
        return self

    def beats(self, since_t: float, until_t: float, by: str = POD, period_s: float = 0.5) -> Story:
        """Record heartbeats of a probe pod."""
        while since_t < until_t:
            self.tell("beat", since_t, by=by)
            since_t += period_s
        return self

    def hear(self, t: float, by: str = POD, error_s: float = 0.02, lost: Iterable[Lost] = ()) -> Story:
        """Record the collection of a source, which may have losses."""
        unsure = [loss.to_json() for loss in lost]
        self.say(t, "heard", by=by, node=NODE, boot_id="b", error_s=error_s, unsure=unsure)
        return self

    def look(self, t: float, value: Json, what: str = "locks", subject: str = NODE, **more: Json) -> Story:
        """Record observations; only one if `more` holds an id."""
        repeated = {} if "id" in more else {"period_s": 0.5}
        self.say(t, "observed", what=what, subject=subject, value=value, asked_t=t - 0.05, **repeated, **more)
        return self

    def looks(self, since_t: float, until_t: float, value: Json, period_s: float = 0.5) -> Story:
        """Record periodic observations."""
        for number in range(int((until_t - since_t) / period_s) + 1):
            self.look(since_t + number * period_s, value)
        return self

    def evict(self, t: float, name: str = POD, *, is_watched: bool = True) -> Story:
        """Request a pod's deletion."""
        deletion = {"deletionTimestamp": wall(t)}
        return self.alter_pod(t, lambda obj: obj["metadata"].update(deletion), name, is_watched=is_watched)

    def event(self, t: float, reason: str, name: str, message: str = "", kind: str = "Pod") -> Story:
        """Write a Kubernetes Event."""
        about = {"kind": kind, "name": name}
        body = {"reason": reason, "message": message, "involvedObject": about}
        return self.change(t, "events", NAMESPACE, f"{name}.{self.rv}", body)

    def fault(self, t: float, *steps: str, id_: str = "cut", **data: Json) -> Story:
        """Record steps of a fault, 10 ms apart."""
        for number, step in enumerate(steps):
            self.say(
                t + number / 100, "fault", **{"id": id_, "fault": {}, "node": NODE, "step": step, **data}
            )
        return self

    def sentinel(self, t: float, latency_s: float = 0.02, blind: Iterable[str] = ()) -> Story:
        """Patch the sentinels; watches in `blind` do not deliver theirs."""
        self._sentinels += 1
        value = f"s-{self._sentinels}"
        for resource in self.resources:
            name = OTHER if resource == "nodes" else "sentinel"
            obj = self.object(resource, _namespace(resource), name)
            obj["metadata"]["annotations"] = {SENTINEL_ANNOTATION: value}
            self.change(
                t + latency_s, resource, _namespace(resource), name, obj, is_watched=resource not in blind
            )
        self.say(t + latency_s, "sentinel", value=value, latency_s=dict.fromkeys(self.resources, latency_s))
        return self

    def gap(self, since_t: float, t: float, resource: str, *, lists: bool = False) -> Story:
        """Record a watch gap, resumed from its resourceVersion or, with `lists`, from a LIST."""
        if lists:
            self.list(t - 0.01, resource)
        self.say(t, "gap", resource=resource, since=since_t, reason="410 Gone" if lists else "cut")
        return self

    def fence(self, t: float, blind: Iterable[str] = ()) -> Story:
        """Add the last sentinels and the quorum LIST; end the recording 50 ms later."""
        value = f"s-{self.sentinel(t, 0.01, blind)._sentinels}"
        listed = {
            resource: {"rv": str(self.rv), "objects": self.objects(resource)} for resource in self.resources
        }
        self.say(t + 0.03, "fence", sentinels=dict.fromkeys(self.resources, value), listed=listed)
        self.say(t + 0.05, "ended")
        return self

    def objects(self, resource: str) -> Mapping[str, str]:
        """Return {uid: resourceVersion} of a LIST now."""
        metas = (obj["metadata"] for obj in self._live[resource].values())
        return {meta["uid"]: meta["resourceVersion"] for meta in metas}

    def _put(self, resource: str, namespace: str, name: str, body: Json) -> Json:
        if resource not in self._live:
            return body
        self.rv += 1
        old = self._live[resource].get((namespace, name))
        self._uids += old is None
        meta = {**(old or {}).get("metadata", {}), **body.get("metadata", {}), "name": name}
        meta["resourceVersion"] = str(self.rv)
        meta.setdefault("uid", f"uid-{self._uids}")
        if namespace:
            meta["namespace"] = namespace
        obj = {**copy.deepcopy(body), "metadata": meta}
        self._live[resource][namespace, name] = obj
        return obj


def partition(
    unknown_s: float = GRACE_S + 0.6, taint_s: float = 0.15, eviction_s: float = TOLERATION_S + 0.1
) -> Story:
    """Return a story of a node cut off at `CUT_T` up to its pod's deletion; not yet fenced.

    `unknown_s` counts from the last lease renewal, `taint_s` from Unknown, `eviction_s` from the taint.
    """
    story = Story().pod(1.0).bind(1.1).sentinel(2.0).renewals(2.5, CUT_T)
    story.fault(CUT_T, "planned", "armed", "injected")
    unknown_t = last_renewal_t() + unknown_s
    story.sentinel(CUT_T + 2)
    story.condition(unknown_t, "Unknown")
    story.taint(unknown_t + taint_s)
    story.evict(unknown_t + taint_s + eviction_s)
    return story


def last_renewal_t() -> float:
    """Return the last Lease renewal of the kubelet of `partition` (s)."""
    period = RENEW_S * 1.02
    return 2.5 + int((CUT_T - 2.5) / period) * period


def _namespace(resource: str) -> str:
    return {"nodes": "", "leases": LEASE_NAMESPACE}.get(resource, NAMESPACE)


def _node_body(status_t: float) -> Json:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": wall(status_t)}
    pressure = {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": wall(-5)}
    return {"spec": {}, "status": {"conditions": [ready, pressure]}}
