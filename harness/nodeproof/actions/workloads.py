"""Pods of a scenario, controllers that create pods, and namespaces; all are deleted when it ends."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nodeproof.actions.action import Action, ActionContext
from nodeproof.actions.api import send_request
from nodeproof.checks import moments
from nodeproof.cluster import workloads
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, pods
from nodeproof.cluster.workloads import HOSTNAME_LABEL, Pod, Witness, pod_spec, tolerates, witness_spec
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.judgment import Moment, Observation, words_in
from nodeproof.model.pattern import PRESENT, Json
from nodeproof.model.problem import Problem


def run_pod(
    *, on: str, tolerates_unreachable_s: int | None = None, tolerations: Sequence[Mapping[str, Json]] = ()
) -> Action[Pod]:
    """Run a pod on a node, with these tolerations.

    Args:
        on: The node's name.
        tolerates_unreachable_s: How long the pod tolerates that its node is unreachable (s); None adds no
            toleration.
        tolerations: Further tolerations.
    """
    unreachable = [] if tolerates_unreachable_s is None else [tolerates(UNREACHABLE, tolerates_unreachable_s)]
    all_tolerations = [*unreachable, *tolerations]
    return Action(
        f"run a pod on {on}", lambda context: workloads.run_pod(context.lab.cluster.api, on, all_tolerations)
    )


def pending_pod(
    *,
    only_on: str,
    tolerations: Sequence[Mapping[str, Json]] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Json,
) -> Action[Pod]:
    """Create a pod that the scheduler may bind to one node only, with these resources.

    `fields` are further fields of its spec, such as `using_pvc(PVC)`.
    """
    return Action(
        f"a pod for {only_on} alone",
        lambda context: workloads.create_pod(
            context.lab.cluster.api, only_on, tolerations, True, requests, limits, fields
        ),
    )


def bound_pod(*, to: str, tolerations: Sequence[Mapping[str, Json]] = ()) -> Action[Pod]:
    """Create a pod that is bound to a node from the beginning, without the scheduler.

    Its kubelet may still reject it.
    """
    return Action(
        f"a pod bound to {to}",
        lambda context: workloads.create_pod(context.lab.cluster.api, to, tolerations),
    )


CAST_GRACE_S = 7
"""Grace period (s) of the pod `patient` of a cast."""
_SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True)
class Cast:
    """Pods of one node that an eviction must not treat differently, and a namesake on another node.

    `compound` has two containers and a memory request, `patient` a grace period of `CAST_GRACE_S`, and
    `critical` the class system-node-critical. `system` is in kube-system, and `namesake` has its name, in the
    namespace of the others. None has an init container: in a fake container runtime it would not end.
    """

    compound: Pod
    patient: Pod
    critical: Pod
    system: Pod
    namesake: Pod

    @property
    def pods(self) -> Sequence[Pod]:
        """Its pods on the node."""
        return (self.compound, self.patient, self.critical, self.system)


def run_cast(*, on: str, namesake_on: str, tolerations: Sequence[Mapping[str, Json]] = ()) -> Action[Cast]:
    """Run pods of different kinds on a node, all with these tolerations, and a namesake of one elsewhere."""
    (main,) = pod_spec({})["containers"]
    several = [{**main, "resources": {"requests": {"memory": "8Mi"}}}, {**main, "name": "second"}]
    system_name = _name()

    def run(context: ActionContext, node: str, namespace: str, name: str, **fields: Json) -> Pod:
        spec = pod_spec({"nodeName": node, "tolerations": list(tolerations), **fields})
        send_request("POST", pods(namespace), {"metadata": {"name": name}, "spec": spec}).do(context)
        return Pod(namespace, name, node)

    def do(context: ActionContext) -> Cast:
        cast = Cast(
            compound=run(context, on, NAMESPACE, _name(), containers=several),
            patient=run(context, on, NAMESPACE, _name(), terminationGracePeriodSeconds=CAST_GRACE_S),
            critical=run(context, on, NAMESPACE, _name(), priorityClassName="system-node-critical"),
            system=run(context, on, _SYSTEM_NAMESPACE, system_name),
            namesake=run(context, namesake_on, NAMESPACE, system_name),
        )
        for pod in (*cast.pods, cast.namesake):
            workloads.wait_running(context.lab.cluster.api, pod, workloads.POD_TIMEOUT_S)
        return cast

    return Action(f"run a cast of pods on {on}", do)


def run_witnesses(*witnesses: Witness, on: str) -> Action[list[Pod]]:
    """Run pods on a node that record what happens to them, to be heard; needs the feature `real-pods`."""

    def do(context: ActionContext) -> list[Pod]:
        pods = workloads.run_witnesses(context.lab.cluster.api, on, witnesses)
        context.keep_clock(on)
        return pods

    return Action(f"run {len(witnesses)} witnesses on {on}", do)


LABEL = "nodeproof.dev/workload"
Kind = Literal["DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"]
_REFUSED_BY_BUDGET, _NO_POD = 429, 404
_IGNORES_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
_JOB = {"backoffLimit": 100, "podFailurePolicy": _IGNORES_DISRUPTIONS}
"""It goes on, however many of its pods are lost."""


@dataclass(frozen=True)
class Namespace:
    """A namespace that the action `make` creates."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class PriorityClass:
    """A PriorityClass that the action `make` creates."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class Workload:
    """A workload that the action `make` creates."""

    name: str
    make: Action[Observation]
    namespace: str = NAMESPACE
    path: str = ""
    """The path of its object."""

    @property
    def pods(self) -> Mapping[str, Json]:
        """A pattern that its pods match."""
        return {"metadata": {"namespace": self.namespace, "labels": {LABEL: self.name}}}

    @property
    def deletion(self) -> Moment:
        """The request to delete one of its pods."""
        return moments.written("pods", {"metadata": {**self.pods["metadata"], "deletionTimestamp": PRESENT}})

    def pod_written(self, **pattern: Json) -> Moment:
        """Match any write of one of its pods that has these fields."""
        return moments.written("pods", {**self.pods, **pattern})

    def running_on(self, node: Json) -> Moment:
        """Match a write of a running pod on a node, given by its name or a pattern."""
        return self.pod_written(spec={"nodeName": node}, status={"phase": "Running"})


def new_namespace() -> Namespace:
    """Return a new namespace of the scenario; it is removed with all its objects when the scenario ends."""
    name = _name()
    return Namespace(name, send_request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))


def priority_class(value: int) -> PriorityClass:
    """Return a new PriorityClass of the scenario; it is removed when the scenario ends."""
    name = _name()
    body = {"metadata": {"name": name}, "value": value}
    return PriorityClass(name, send_request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body))


def workload(kind: Kind, *, replicas: int = 1, namespace: str = NAMESPACE, **pod: Json) -> Workload:
    """Return a new workload, whose pods do nothing and run on the scenario's nodes.

    It and all that it creates is removed when the scenario ends, otherwise by the next run or `nodeproof
    heal`.

    Args:
        kind: The kind of the workload.
        replicas: The number of pods; a DaemonSet ignores it. A Job replaces those that it loses.
        namespace: The common namespace of all scenarios by default, or one of the scenario's own.
        **pod: Fields of the pods' spec.
    """
    name = _name()
    labels = {LABEL: name}
    spec: dict[str, Json] = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    if kind == "Job":
        spec |= {"parallelism": replicas, **_JOB}
    elif kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    group = "batch/v1" if kind == "Job" else "apps/v1"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = f"/apis/{group}/namespaces/{namespace}/{kind.lower()}s"

    def make(context: ActionContext) -> Observation:
        pod_fields = pod | {"nodeSelector": {**context.lab.placement, **pod.get("nodeSelector", {})}}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(pod_fields)}
        # A pod that records may run on any node.
        for node in context.lab.fleet.node_names() if "containers" in pod else ():
            context.keep_clock(node)
        return send_request("POST", path, {**body, "spec": {**spec, "template": template}}).do(context)

    return Workload(name, Action(f"POST {path}", make), namespace, f"{path}/{name}")


def scale(over: Workload, replicas: int) -> Action[Observation]:
    """Set the number of a workload's pods."""
    return send_request("PATCH", over.path, {"spec": {"replicas": replicas}})


def roll_out(over: Workload, revision: str) -> Action[Observation]:
    """Replace a workload's pods by those of another revision."""
    template = {"metadata": {"annotations": {"nodeproof.dev/revision": revision}}}
    return send_request("PATCH", over.path, {"spec": {"template": template}})


def evict(pod: str) -> Action[None]:
    """Request the eviction of a pod by its name; a budget may refuse it, or the pod may not exist."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}

    def do(context: ActionContext) -> None:
        try:
            context.lab.cluster.api.create(f"{pods(NAMESPACE)}/{pod}/eviction", body)
        except ApiError as error:
            if error.status not in (_REFUSED_BY_BUDGET, _NO_POD):
                raise

    return Action(f"evict {pod}", do)


def preferring(node: str) -> dict[str, Json]:
    """Return fields for `workload`: its pods prefer this node."""
    here = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": here}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def using_pvc(pvc: str) -> dict[str, Json]:
    """Return fields for `workload` and `pending_pod`: the pods use a PVC and mount its volume."""
    return {"volumes": [{"name": "held", "persistentVolumeClaim": {"claimName": pvc}}]}


def witness_fields(witness: Witness) -> dict[str, Json]:
    """Return fields for `workload`: its pods record what happens to them."""
    return witness_spec(witness)


def pod_of(over: Workload, *, on: str) -> Action[Pod]:
    """Find the pod that a workload has on a node, whatever name its controller gave it."""

    def find(context: ActionContext) -> Pod:
        for entry in context.lab.cluster.api.get(pods(over.namespace))["items"]:
            labels = entry["metadata"].get("labels") or {}
            if labels.get(LABEL) == over.name and entry["spec"].get("nodeName") == on:
                return Pod(over.namespace, str(entry["metadata"]["name"]), on)
        raise Problem(
            f"workload {over.name} has no pod on {on}",
            f"pod_of(..., on={on!r})",
            "wait for its `running_on` first",
        )

    return Action(f"find the pod of {over.name} on {on}", find)


def service(over: Workload, *, port: int = 80) -> Action[Observation]:
    """Create a headless Service over a workload's pods, with the workload's name.

    The pods of a StatefulSet are resolved through it.
    """
    spec = {"clusterIP": "None", "selector": {LABEL: over.name}, "ports": [{"port": port}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": over.name}, "spec": spec}
    return send_request("POST", f"/api/v1/namespaces/{over.namespace}/services", body)


def disruption_budget(over: Workload, *, min_available: str = "100%") -> Action[Observation]:
    """Create a PodDisruptionBudget over a workload's pods."""
    selector = {"matchLabels": {LABEL: over.name}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": over.name},
        "spec": {"minAvailable": min_available, "selector": selector},
    }
    return send_request("POST", f"/apis/policy/v1/namespaces/{over.namespace}/poddisruptionbudgets", body)


def _name() -> str:
    return f"probe-{uuid.uuid4().hex[:8]}"


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action, Namespace, PriorityClass, Workload)  # noqa: PLE0605
