"""What a fault on a node of an existing cluster hits, and what refuses it."""

from __future__ import annotations

import pytest

from nodeproof.existing import impact
from nodeproof.existing.impact import ENDS_PODS, Impact, State
from nodeproof.faults import FAULTS
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.pattern import Json
from tests.unit.test_marks import INVENTORY, NAME, NOW, ROLE, VALID, naming_control_plane, node

OWNED = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
READY: Json = {"conditions": [{"type": "Ready", "status": "True"}]}
FOREVER = {"operator": "Exists"}
FOR_300_S = {"key": UNREACHABLE, **FOREVER, "tolerationSeconds": 300}
CORDONED = {"unschedulable": True}
DELETED = {**node(VALID)["metadata"], "deletionTimestamp": "now"}
WITHOUT_TIER = {"key": "tier", "operator": "DoesNotExist"}


def member(**fields: Json) -> Json:
    """Return a Node that is in service."""
    return {**node(VALID), "status": {**READY, "nodeInfo": {"machineID": "machine-1"}}, **fields}


def pod(name: str = "web-1", *tolerations: Json, owners: Json = OWNED, **fields: Json) -> Json:
    """Return a Ready pod on the node with the label app=web."""
    metadata = {"namespace": "default", "name": name, "labels": {"app": "web"}, "ownerReferences": owners}
    spec = {"nodeName": NAME, "tolerations": list(tolerations), "volumes": fields.pop("volumes", [])}
    return {"metadata": metadata | fields.pop("metadata", {}), "spec": spec, "status": READY, **fields}


def budget(allowed: int, selector: Json) -> Json:
    metadata = {"namespace": "default", "name": "web"}
    return {"metadata": metadata, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}}


def state(*pods: Json, **fields: Json) -> State:
    return State(fields.pop("nodes", {NAME: member()}), pods, **fields)


def forecast(of: State, fault: str = "partition") -> Impact:
    return impact.forecast(INVENTORY, NAME, fault, of, NOW)


def test_replaceable_pod_refuses_nothing() -> None:
    assert forecast(state(pod())) == Impact(["default/web-1"], [], [], [], [], [])


@pytest.mark.parametrize(
    ("fault", "tolerations", "pods"),
    [
        ("partition", [FOR_300_S], ["default/web-1 (after 300 s)"]),
        ("partition", [FOREVER], []),
        *((fault, [FOREVER], ["default/web-1"]) for fault in sorted(ENDS_PODS)),
    ],
)
def test_pod_is_hit_at_once_or_after_its_toleration(fault: str, tolerations: Json, pods: list[str]) -> None:
    assert forecast(state(pod("web-1", *tolerations)), fault).pods == pods


@pytest.mark.parametrize("other", [pod(status={"phase": "Succeeded"}), pod() | {"spec": {"nodeName": "w-8"}}])
def test_ended_pod_and_pod_of_another_node_are_not_hit(other: Json) -> None:
    assert forecast(state(other), "power-off").pods == []


def test_bare_pod_refuses_the_fault() -> None:
    (reason,) = forecast(state(pod(owners=[]))).refusals
    assert reason == "default/web-1 is a bare pod: nothing replaces it"


def test_bare_pod_that_is_being_deleted_refuses_nothing() -> None:
    deleted = pod(owners=[], metadata={"deletionTimestamp": "now"})
    assert forecast(state(deleted)).refusals == []


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({NAME: member(), "worker-8": member(status={})}, "worker-8 is away already: not Ready"),
        ({NAME: member(), "worker-8": member(spec=CORDONED)}, "worker-8 is away already: cordoned"),
        ({NAME: member(spec=CORDONED)}, "it is away already: cordoned"),
        ({NAME: member(metadata=DELETED)}, "it is away already: being deleted"),
        ({NAME: {**member(), "metadata": node()["metadata"]}}, "it is not marked"),
        ({}, "the cluster has no such Node"),
    ],
)
def test_unavailable_or_unmarked_node_refuses_the_fault(nodes: Json, reason: str) -> None:
    assert forecast(state(pod(), nodes=nodes)).refusals == [reason]


@pytest.mark.parametrize(("others", "is_refused"), [(0, True), (1, True), (2, False)])
def test_power_cut_that_ends_the_quorum_of_etcd_is_refused(others: int, is_refused: bool) -> None:
    metadata = {**node(VALID)["metadata"], "labels": {ROLE: ""}}
    planes = {name: member(metadata=metadata) for name in (NAME, *(f"plane-{n}" for n in range(others)))}
    inventory = naming_control_plane()
    refusals = impact.forecast(inventory, NAME, "power-off", state(nodes=planes), NOW).refusals
    lost = f"1 of {others + 1} control-plane nodes would be lost: etcd would have no quorum"
    assert refusals == ([lost] if is_refused else [])
    assert impact.forecast(inventory, NAME, "unit-down", state(nodes=planes), NOW).refusals == []


@pytest.mark.parametrize(("allowed", "refusals"), [(1, 1), (2, 0)])
def test_budget_must_allow_all_pods_of_the_node_at_once(allowed: int, refusals: int) -> None:
    budgets = [budget(allowed, {"matchLabels": {"app": "web"}})]
    effect = forecast(state(pod("web-1"), pod("web-2"), budgets=budgets))
    assert effect.budgets == [f"default/web (allows {allowed} at once, hit: 2)"]
    assert len(effect.refusals) == refusals


def test_pod_that_is_not_ready_or_static_does_not_use_a_budget() -> None:
    static = pod("web-2", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    members = [pod("web-1", status={}), static, pod("web-3")]
    assert forecast(state(*members, budgets=[budget(1, {})]), "power-off").refusals == []


@pytest.mark.parametrize(
    ("selector", "is_covered"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [WITHOUT_TIER]}, True),
    ],
)
def test_budget_covers_pods_by_its_selector(selector: Json, is_covered: bool) -> None:
    assert impact.covers(budget(1, selector), pod()) is is_covered


def test_budget_of_another_namespace_covers_no_pod() -> None:
    assert not impact.covers(budget(1, {}), pod(metadata={"namespace": "other"}))


def test_volumes_are_listed_by_whether_they_can_follow_the_pod() -> None:
    claimed = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in ("data", "disk", "unbound")]
    kinds = {"cache": "emptyDir", "token": "projected", "share": "nfs", "scratch": "ephemeral"}
    volumes = [*({"name": name, kind: {}} for name, kind in kinds.items()), *claimed]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname"}]}]
    specs: Json = {
        "data": {"csi": {}},
        "disk": {"local": {}},
        "web-1-scratch": {"csi": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }
    effect = forecast(
        state(
            pod(volumes=volumes),
            claims={f"default/{name}": {"spec": {"volumeName": name}} for name in specs},
            volumes={name: {"spec": spec} for name, spec in specs.items()},
        )
    )
    assert effect.volumes == ["default/web-1 share (nfs)", "default/data", "default/unbound"]
    assert effect.local_volumes == ["default/web-1 cache (emptyDir)", "default/web-1-scratch", "default/disk"]


def test_faults_that_end_pods_exist() -> None:
    assert FAULTS.keys() >= ENDS_PODS
