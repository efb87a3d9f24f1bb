"""A lab as a user's own cluster: what `mark` and `unmark` write and refuse, and what `plan` shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import node
from nodeproof.cluster.workloads import IMAGE
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.pattern import Json
from tests.acceptance.own_cluster import FUTURE, OwnCluster, account
from tests.acceptance.test_audit import writes_by
from tests.waiting import eventually

NAME, PLANNER, ROLE = "nodeproof-mark", "nodeproof-plan", "node-role.kubernetes.io/control-plane"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
POD_TIMEOUT_S = 60.0


def role(name: str, *rules: Json) -> Json:
    return {"metadata": {"name": name}, "rules": rules}


def rule(group: str, verb: str, *resources: str) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": [verb]}


@pytest.fixture(scope="module")
def other_user(
    served: Path, shared_whole_lab: LabHandle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Write a kubeconfig of a second user, who has the rights that `mark` names when it is refused."""
    rules = rule("", "get", "namespaces"), rule("", "list", "nodes"), rule("", "patch", "nodes")
    with account(served, shared_whole_lab, tmp_path_factory.mktemp("mark"), role(NAME, *rules)) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def planner(served: Path, whole_lab: LabHandle, tmp_path: Path) -> Iterator[Path]:
    """Write a kubeconfig of a user who has the rights that `plan` names when it is refused."""
    rules = (
        rule("", "get", "namespaces", "persistentvolumeclaims", "persistentvolumes"),
        rule("", "list", "nodes", "pods"),
        rule("", "create", "pods/eviction"),
        rule("policy", "list", "poddisruptionbudgets"),
        rule("apps", "list", "deployments", "daemonsets"),
    )
    with account(served, whole_lab, tmp_path, role(PLANNER, *rules)) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def own(whole_lab: LabHandle, served: Path, tmp_path: Path) -> Iterator[OwnCluster]:
    """Return the lab with empty SSH files; remove marks and the role of its nodes afterwards."""
    for name in ("ssh_config", "known_hosts"):
        (tmp_path / name).touch()
    own = OwnCluster(whole_lab, tmp_path, served)
    yield own
    own.remove_marks()
    for name in own.names:
        whole_lab.cluster.api.patch(node(name), {"metadata": {"labels": {ROLE: None}}})


def write(own: OwnCluster, *names: str, kubeconfig: Path | None = None, **cluster: str) -> None:
    """Write an inventory that allows partitions of these nodes."""
    own.write({name: {"may": ["partition"]} for name in names}, kubeconfig, **cluster)


@pytest.fixture
def web(own: OwnCluster) -> Iterator[str]:
    """Run a pod of a ReplicaSet with a disruption budget on the first node; return the budget's path."""
    api = own.lab.cluster.api
    labels = {"app": "nodeproof-web"}
    spec = {
        "nodeName": own.names[0],
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": IMAGE}],
        "volumes": [{"name": "cache", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata, selector = {"name": "nodeproof-web"}, {"matchLabels": labels}
    api.create(SETS, {"metadata": metadata, "spec": {"selector": selector, "template": template}})
    api.create(BUDGETS, {"metadata": metadata, "spec": {"selector": selector, "minAvailable": 1}})
    budget = f"{BUDGETS}/nodeproof-web"
    eventually(lambda: api.get(budget).get("status", {}).get("currentHealthy") == 1, POD_TIMEOUT_S)
    yield budget
    api.delete(budget)
    api.delete(f"{SETS}/nodeproof-web")


@pytest.fixture
def health_check(own: OwnCluster) -> Iterator[None]:
    """Create a NodeHealthCheck that selects all nodes, and its resource."""
    api, group, plural = own.lab.cluster.api, "remediation.medik8s.io", "nodehealthchecks"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": "nodehealthcheck", "kind": "NodeHealthCheck"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    api.create(DEFINITIONS, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    condition = {"type": "Ready", "status": "Unknown", "duration": "300s"}
    check = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "workers"},
        "spec": {"selector": {}, "unhealthyConditions": [condition]},
    }

    def is_created() -> bool:
        with contextlib.suppress(ApiError):
            api.ensure(f"/apis/{group}/v1alpha1/{plural}", check)
            return True
        return False

    eventually(is_created, POD_TIMEOUT_S)
    yield
    api.delete(f"{DEFINITIONS}/{plural}.{group}")


def test_mark_is_written_listed_and_removed(own: OwnCluster) -> None:
    name = own.names[0]
    write(own, *own.names)
    own.mark(name)
    stored = own.lab.cluster.api.get(node(name))
    mark = own.marks()[name]
    assert mark["owner"].startswith("nodeproof-admin (")
    assert {key: mark[key] for key in ("until", "machineID", "clusterUID")} == {
        "until": FUTURE,
        "machineID": stored["status"]["nodeInfo"]["machineID"],
        "clusterUID": own.uid(),
    }
    listed = own.nodeproof("mark", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [name]
    assert "may be harmed by partition" in listed[1]
    assert own.nodeproof("unmark", name).status == 0
    assert own.marks() == {}


def test_plan_names_what_a_fault_hits_and_what_refuses_it(own: OwnCluster, web: str, planner: Path) -> None:
    marked, unmarked = own.names[:2]
    write(own, *own.names)
    own.mark(marked)
    write(own, marked, unmarked, kubeconfig=planner)
    process = own.nodeproof("plan")
    assert process.status == 2, process
    assert "2 of 2 allowed faults refused" in process.stderr
    refused, others = process.stdout.split(f"\n{unmarked}\n")
    assert "would violate the pod's disruption budget" in refused
    assert "disruption budgets: default/nodeproof-web (allows 0 at once, hit: 1)" in refused
    assert "cache (emptyDir)" in refused
    assert "refused: it is not marked" in others
    own.lab.cluster.api.delete(web)
    write(own, marked, kubeconfig=planner)
    process = own.nodeproof("plan")
    assert process.status == 0, process
    assert "  partition: can be injected" in process.stdout
    assert "remediators: none" in process.stdout
    eventually(lambda: len(writes_by(own.lab, PLANNER)) == 2, POD_TIMEOUT_S)
    assert all("dryRun=All" in uri for uri in writes_by(own.lab, PLANNER))


@pytest.mark.usefixtures("health_check")
def test_plan_names_a_remediator_that_it_can_read(own: OwnCluster, planner: Path) -> None:
    name = own.names[0]
    write(own, name)
    own.mark(name)
    process = own.nodeproof("plan")
    assert process.status == 0, process
    assert "remediators: nodehealthchecks.remediation.medik8s.io workers (after 300 s)" in process.stdout
    write(own, name, kubeconfig=planner)
    process = own.nodeproof("plan")
    assert process.status == 2, process
    assert "refused: remediators cannot be read: nodehealthchecks" in process.stdout


def test_plan_compares_the_machines_that_ssh_reaches_with_their_nodes(own: OwnCluster) -> None:
    addresses = own.addresses()
    first, second, unlisted = own.names
    write(own, first, second)
    own.mark(first, second)
    own.write_ssh_files({first: addresses[first], second: addresses[unlisted]})
    process = own.nodeproof("plan", "--ssh")
    assert process.status == 2, process
    reached, other = process.stdout.split(f"{second}\n")
    # A process node has no systemd; its identity and nft are in order.
    assert reached.count("refused:") == 1
    assert "no systemd" in reached
    assert "another machine id" in other


def test_one_refused_node_leaves_all_unmarked(own: OwnCluster) -> None:
    allowed, control, unlisted = own.names
    own.lab.cluster.api.patch(node(control), {"metadata": {"labels": {ROLE: ""}}})
    write(own, allowed, control, "absent")
    process = own.nodeproof("mark", allowed, control, unlisted, "absent")
    assert process.status == 2, process
    for name, reason in {
        control: "a control-plane node",
        unlisted: "does not list it",
        "absent": "no such Node",
    }.items():
        assert any(name in line and reason in line for line in process.stderr.splitlines()), process
    assert own.marks() == {}


def test_mark_of_another_user_is_kept(own: OwnCluster, other_user: Path) -> None:
    name = own.names[0]
    write(own, *own.names, kubeconfig=other_user)
    own.mark(name)
    before = own.marks()
    write(own, *own.names)
    process = own.nodeproof("mark", name)
    assert process.status == 2, process
    assert f"system:serviceaccount:default:{NAME}" in process.stderr
    assert own.marks() == before


@pytest.mark.parametrize("command", ["mark", "unmark"])
def test_inventory_of_another_cluster_is_refused(command: str, own: OwnCluster) -> None:
    write(own, *own.names, uid="6f0c1c1e-0000-4000-8000-000000000001")
    process = own.nodeproof(command, own.names[0])
    assert process.status == 2, process
    assert "another cluster" in process.stderr
    assert own.marks() == {}
