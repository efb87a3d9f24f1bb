"""Controllers that would act on a node with a fault, and the faults that they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.existing import impact
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.impact import Impact
from nodeproof.faults.units import UnitDown
from nodeproof.labs.kinds.existing.consent import MarkedNodes
from nodeproof.model.pattern import Json
from nodeproof.safety.guard import Declared, NotPermitted
from nodeproof.safety.injector import HEAL_TIMEOUT_S
from tests.unit.in_process import Call
from tests.unit.own_cluster import Cluster, handler_of, serving
from tests.unit.test_marks import NAME, NOW

CAPI, OPENSHIFT, MEDIK8S = "cluster.x-k8s.io", "machine.openshift.io", "remediation.medik8s.io"
VERSIONS = {CAPI: ["v1beta2"], OPENSHIFT: ["v1", "v1beta1"], MEDIK8S: ["v1alpha1"]}
LABELS = {"role": "worker"}
LONG_S, SHORT_S = 301.0, 299.0
UNKNOWN = {"type": "Ready", "status": "Unknown"}


class Remediated(Cluster):
    """A cluster that also has the API groups of controllers of nodes."""

    def serve(self, group: str, resource: str, *objects: Json) -> None:
        versions = [f"{group}/{version}" for version in VERSIONS[group]]
        self.objects[f"/apis/{group}"] = {"versions": [{"groupVersion": version} for version in versions]}
        self.objects[f"/apis/{versions[-1]}/{resource}"] = {"items": list(objects)}

    def check(self, group: str, **spec: Json) -> None:
        """Serve a MachineHealthCheck, in the namespace of the Machines."""
        self.serve(group, "machinehealthchecks", health_check(namespace="ns", **spec))


def health_check(namespace: str = "", annotations: Json = None, **spec: Json) -> Json:
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": "workers", "annotations": annotations, **place}, "spec": spec}


def machine(node: str = NAME, cluster: str = "prod") -> Json:
    """Return the Machine of a Node."""
    metadata = {"name": "machine", "namespace": "ns", "labels": LABELS}
    return {"metadata": metadata, "spec": {"clusterName": cluster}, "status": {"nodeRef": {"name": node}}}


@pytest.fixture
def remediated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remediated]:
    """Serve the cluster, and make the folder of its kubeconfig and inventory the working folder."""
    cluster = Remediated()
    cluster.serve(CAPI, "machines", machine())
    cluster.serve(OPENSHIFT, "machines", machine())
    monkeypatch.chdir(tmp_path)
    with serving(handler_of(cluster), tmp_path, ["unit-down"]):
        yield cluster


@pytest.fixture
def connection(remediated: Remediated) -> Iterator[ConnectedCluster]:
    """Connect the cluster."""
    with connected(Path("cluster.yaml"), "test", "all") as cluster:
        yield cluster


def effect(cluster: ConnectedCluster, lasts_s: float = LONG_S) -> Impact:
    """Return what a fault that lasts so long (s) would hit."""
    state = impact.read_state(cluster)
    return impact.forecast(cluster.inventory, NAME, "unit-down", state, NOW, lasts_s)


@pytest.mark.parametrize(
    ("group", "spec"),
    [
        (CAPI, {"unhealthyConditions": [{**UNKNOWN, "timeout": "5m0s"}]}),
        (CAPI, {"checks": {"unhealthyNodeConditions": [{**UNKNOWN, "timeoutSeconds": 300}]}}),
        (CAPI, {"checks": {"unhealthyMachineConditions": [{**UNKNOWN, "timeoutSeconds": 300}]}}),
        (OPENSHIFT, {"unhealthyConditions": [{**UNKNOWN, "timeout": "300s"}]}),
    ],
)
def test_machine_health_check_refuses_a_fault_that_outlasts_it(
    remediated: Remediated, connection: ConnectedCluster, group: str, spec: Json
) -> None:
    remediated.check(group, **spec)
    name = f"machinehealthchecks.{group} ns/workers"
    assert effect(connection, SHORT_S).refusals == []
    assert effect(connection, SHORT_S).remediators == [f"{name} (after 300 s)"]
    assert effect(connection).refusals == [f"{name} acts on it after 300 s, and the fault may last 301 s"]


def test_node_health_check_counts_by_its_shortest_time(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    times = {"False": "600s", "Unknown": "300s", "True": "1s"}
    conditions = [{"type": "Ready", "status": status, "duration": after} for status, after in times.items()]
    check = health_check(selector={}, unhealthyConditions=conditions)
    remediated.serve(MEDIK8S, "nodehealthchecks", check)
    assert effect(connection).remediators == [f"nodehealthchecks.{MEDIK8S} workers (after 300 s)"]


def test_condition_of_another_program_may_become_true_by_a_fault(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    conditions = [{"type": "KubeletUnhealthy", "status": "True", "duration": "60s"}]
    check = health_check(selector={}, unhealthyConditions=conditions)
    remediated.serve(MEDIK8S, "nodehealthchecks", check)
    assert effect(connection).remediators == [f"nodehealthchecks.{MEDIK8S} workers (after 60 s)"]


def test_time_that_cannot_be_read_refuses_every_fault(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    remediated.check(CAPI, unhealthyConditions=[{**UNKNOWN, "timeout": "soon"}])
    assert len(effect(connection, 0.0).refusals) == 1


@pytest.mark.parametrize(
    ("spec", "machines", "counts"),
    [
        ({"clusterName": "prod", "selector": {"matchLabels": LABELS}}, [machine()], True),
        ({"selector": {"matchLabels": {"role": "db"}}}, [machine()], False),
        ({"clusterName": "test"}, [machine()], False),
        ({}, [machine(node="worker-8")], False),
        ({}, [], False),
        ({"annotations": {"cluster.x-k8s.io/paused": ""}}, [machine()], False),
    ],
)
def test_only_the_health_checks_of_the_machine_of_the_node_count(
    remediated: Remediated, connection: ConnectedCluster, spec: Json, machines: list[Json], counts: bool
) -> None:
    remediated.serve(CAPI, "machines", *machines)
    remediated.check(CAPI, unhealthyConditions=[{**UNKNOWN, "timeout": "300s"}], **spec)
    assert len(effect(connection).refusals) == counts


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"selector": {"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}}, True),
        ({"selector": {"matchExpressions": [{"key": "role", "operator": "Exists"}]}}, False),
        ({"selector": {}, "pauseRequests": ["upgrade"]}, False),
    ],
)
def test_node_health_check_counts_if_it_selects_the_node_and_is_not_paused(
    remediated: Remediated, connection: ConnectedCluster, spec: Json, counts: bool
) -> None:
    check = health_check(unhealthyConditions=[{**UNKNOWN, "duration": "300s"}], **spec)
    remediated.serve(MEDIK8S, "nodehealthchecks", check)
    assert len(effect(connection).refusals) == counts


def test_health_check_counts_if_machines_cannot_be_read(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    conditions = [{**UNKNOWN, "timeout": "300s"}]
    remediated.check(CAPI, selector={"matchLabels": {"role": "db"}}, unhealthyConditions=conditions)
    remediated.refused.add(f"/apis/{CAPI}/v1beta2/machines")
    assert len(effect(connection).refusals) == 1


@pytest.mark.parametrize("path", [f"/apis/{MEDIK8S}", f"/apis/{OPENSHIFT}/v1beta1/machinehealthchecks"])
def test_forbidden_answer_refuses_every_fault(remediated: Remediated, call: Call, path: str) -> None:
    remediated.refused.add(path)
    output = call("plan", "--cluster", "cluster.yaml")
    assert "refused: remediators cannot be read: " in output.out
    assert "HTTP 403: forbidden" in " ".join(output.out.split())
    assert "1 of 1 allowed fault refused" in output.refusal


def test_karpenter_refuses_a_fault_that_outlasts_its_repair(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    remediated.nodes[0]["metadata"]["labels"] = {"karpenter.sh/nodepool": "spot"}
    (reason,) = effect(connection, LONG_S).refusals
    assert "NodePool spot, with the feature gate NodeRepair, acts on it after" in reason


def test_programs_and_a_managing_cluster_are_warnings(
    remediated: Remediated, connection: ConnectedCluster
) -> None:
    programs = [
        {"metadata": {"namespace": "ops", "name": name}} for name in ("aws-cluster-autoscaler", "web")
    ]
    remediated.objects["/apis/apps/v1/deployments"] = {"items": programs}
    remediated.refused.add("/apis/apps/v1/daemonsets")
    remediated.nodes[0]["metadata"]["annotations"]["cluster.x-k8s.io/machine"] = "machine"
    shown = effect(connection)
    assert shown.refusals == []
    assert shown.remediators == [
        "perhaps a machinehealthcheck of a cluster that manages this one",
        "perhaps ops/aws-cluster-autoscaler",
        "perhaps others: daemonsets: HTTP 403: forbidden",
    ]


@pytest.mark.parametrize(
    ("after_s", "is_refused"), [(HEAL_TIMEOUT_S + 60, True), (HEAL_TIMEOUT_S + 61, False)]
)
def test_run_counts_the_scenario_and_the_healing(
    remediated: Remediated, connection: ConnectedCluster, after_s: float, is_refused: bool
) -> None:
    Path("ssh_config").write_text("ProxyCommand false\n")
    conditions = {"unhealthyNodeConditions": [{**UNKNOWN, "timeoutSeconds": after_s}]}
    remediated.check(CAPI, checks=conditions)
    with pytest.raises(NotPermitted) as refused:
        MarkedNodes(connection, "x", Path("ssh_config")).permit(UnitDown(NAME), Declared([NAME], lasts_s=60))
    assert ("acts on it after" in str(refused.value)) is is_refused
