"""A lab as somebody's own cluster: what `mark` and `unmark` write and refuse, and what `plan` shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from nodeproof.cluster.resources import node
from nodeproof.cluster.workloads import IMAGE
from nodeproof.existing.marks import ANNOTATION
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.pattern import Json
from tests.acceptance.accounts import account
from tests.acceptance.command import nodeproof
from tests.acceptance.test_audit import writes_by
from tests.waiting import eventually

NAME, PLANNER, ROLE = "nodeproof-mark", "nodeproof-plan", "node-role.kubernetes.io/control-plane"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
POD_TIMEOUT_S = 60.0
FUTURE = "2099-01-31T18:00:00+00:00"
DIAL = """
import pathlib, socket, sys
from nodeproof.labs.base.wire import SupervisorClient
connection = SupervisorClient(pathlib.Path(sys.argv[1])).dial(sys.argv[2], 22, 5)
socket.send_fds(socket.socket(fileno=1), [bytes(1)], [connection.fileno()])
"""
"""A ProxyCommand that passes its connection on to ssh (ssh_config(5), ProxyUseFdpass)."""


def role(name: str, *rules: Json) -> Json:
    return {"metadata": {"name": name}, "rules": rules}


def rule(group: str, verb: str, *resources: str) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": [verb]}


@pytest.fixture(scope="module")
def other_user(
    served: Path, altered_whole: LabHandle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Write a kubeconfig of a second user, who has the rights that `mark` names when it is refused."""
    rules = rule("", "get", "namespaces"), rule("", "list", "nodes"), rule("", "patch", "nodes")
    with account(served, altered_whole, tmp_path_factory.mktemp("mark"), role(NAME, *rules)) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def planner(served: Path, whole_lab: LabHandle, tmp_path: Path) -> Iterator[Path]:
    """Write a kubeconfig of a user who has the rights that `plan` names when it is refused."""
    rules = (
        rule("", "get", "namespaces", "persistentvolumeclaims", "persistentvolumes"),
        rule("", "list", "nodes", "pods"),
        rule("", "create", "pods/eviction"),
        rule("policy", "list", "poddisruptionbudgets"),
    )
    with account(served, whole_lab, tmp_path, role(PLANNER, *rules)) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def web(whole_lab: LabHandle, names: list[str]) -> Iterator[str]:
    """Run a pod of a ReplicaSet with a disruption budget on the first node; return the budget's path."""
    api = whole_lab.cluster.api
    labels = {"app": "nodeproof-web"}
    spec = {
        "nodeName": names[0],
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
def names(whole_lab: LabHandle) -> Iterator[list[str]]:
    """Return the names of the lab's nodes, and remove their marks and the role afterwards."""
    names = sorted(entry.name for entry in whole_lab.fleet.nodes())
    yield names
    metadata = {"annotations": {ANNOTATION: None}, "labels": {ROLE: None}}
    for name in names:
        whole_lab.cluster.api.patch(node(name), {"metadata": metadata})


@pytest.fixture
def write(whole_lab: LabHandle, served: Path, tmp_path: Path) -> Callable[..., str]:
    """Return `write(names, kubeconfig, **cluster)`, which writes an inventory and returns its name."""
    uid = whole_lab.cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]

    def write_inventory(names: list[str], kubeconfig: Path = served, **cluster: str) -> str:
        for name in ("ssh_config", "known_hosts"):
            (tmp_path / name).touch()
        context = yaml.safe_load(kubeconfig.read_text())["current-context"]
        content = {
            "cluster": {"kubeconfig": str(kubeconfig), "context": context, "uid": uid, **cluster},
            "ssh": {"config": "ssh_config", "known_hosts": "known_hosts"},
            "nodes": {name: {"may": ["partition"]} for name in names},
        }
        (tmp_path / "cluster.yaml").write_text(json.dumps(content))
        return "cluster.yaml"

    return write_inventory


def marks_of(lab: LabHandle) -> Mapping[str, Json]:
    nodes = lab.cluster.api.get("/api/v1/nodes")["items"]
    texts = {entry["metadata"]["name"]: entry["metadata"]["annotations"].get(ANNOTATION) for entry in nodes}
    return {name: json.loads(text) for name, text in texts.items() if text}


def test_mark_is_written_listed_and_removed(
    whole_lab: LabHandle, names: list[str], write: Callable[..., str], tmp_path: Path
) -> None:
    file = write(names)
    process = nodeproof("mark", "--cluster", file, names[0], "--until", FUTURE, cwd=tmp_path)
    assert process.status == 0, process
    stored = whole_lab.cluster.api.get(node(names[0]))
    uid = whole_lab.cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    mark = marks_of(whole_lab)[names[0]]
    assert mark["owner"].startswith("nodeproof-admin (")
    assert {key: mark[key] for key in ("until", "machineID", "clusterUID")} == {
        "until": FUTURE,
        "machineID": stored["status"]["nodeInfo"]["machineID"],
        "clusterUID": uid,
    }
    listed = nodeproof("mark", "--cluster", file, "--list", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [names[0]]
    assert "may be harmed by partition" in listed[1]
    assert nodeproof("unmark", "--cluster", file, names[0], cwd=tmp_path).status == 0
    assert marks_of(whole_lab) == {}


def test_plan_names_what_a_fault_hits_and_what_refuses_it(
    whole_lab: LabHandle,
    names: list[str],
    write: Callable[..., str],
    web: str,
    planner: Path,
    tmp_path: Path,
) -> None:
    marked, unmarked = names[:2]
    assert nodeproof("mark", "--cluster", write(names), marked, cwd=tmp_path).status == 0
    plan = ("plan", "--cluster", write([marked, unmarked], planner))
    process = nodeproof(*plan, cwd=tmp_path)
    assert process.status == 2, process
    assert "2 of 2 allowed faults refused" in process.stderr
    refused, others = process.stdout.split(f"\n{unmarked}\n")
    assert "would violate the pod's disruption budget" in refused
    assert "disruption budgets: default/nodeproof-web (allows 0 at once, hit: 1)" in refused
    assert "cache (emptyDir)" in refused
    assert "refused: it is not marked" in others
    whole_lab.cluster.api.delete(web)
    process = nodeproof("plan", "--cluster", write([marked], planner), cwd=tmp_path)
    assert process.status == 0, process
    assert "  partition: can be injected" in process.stdout
    eventually(lambda: len(writes_by(whole_lab, PLANNER)) == 2, POD_TIMEOUT_S)
    assert all("dryRun=All" in uri for uri in writes_by(whole_lab, PLANNER))


def write_ssh_files(lab: LabHandle, folder: Path, address_of: Mapping[str, str]) -> None:
    """Write an ssh_config and known_hosts by which ssh reaches each node at an address."""
    (folder / "dial.py").write_text(DIAL)
    dial = f"ProxyCommand {sys.executable} {folder / 'dial.py'} {lab.dir / 's'} %h"
    everywhere = ["User root", f"IdentityFile {lab.dir / 'pki' / 'ssh'}", "ProxyUseFdpass yes", dial]
    hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in address_of.items())
    (folder / "ssh_config").write_text(hosts + "Host *\n" + "".join(f"  {line}\n" for line in everywhere))
    keys = {
        entry.control_address: (lab.dir / "pki" / f"{entry.name}.hostkey").read_text()
        for entry in lab.fleet.nodes()
    }
    (folder / "known_hosts").write_text("".join(f"{address} {key}" for address, key in keys.items()))


def test_plan_compares_the_machines_that_ssh_reaches_with_their_nodes(
    whole_lab: LabHandle, names: list[str], write: Callable[..., str], tmp_path: Path
) -> None:
    addresses = {entry.name: entry.control_address for entry in whole_lab.fleet.nodes()}
    first, second, unlisted = names
    file = write([first, second])
    assert nodeproof("mark", "--cluster", file, first, second, cwd=tmp_path).status == 0
    write_ssh_files(whole_lab, tmp_path, {first: addresses[first], second: addresses[unlisted]})
    process = nodeproof("plan", "--cluster", file, "--ssh", cwd=tmp_path)
    assert process.status == 2, process
    own, other = process.stdout.split(f"{second}\n")
    # A process node has no systemd; its identity and nft are in order.
    assert own.count("refused:") == 1
    assert "no systemd" in own
    assert "another machine id" in other


def test_one_refused_node_leaves_all_unmarked(
    whole_lab: LabHandle, names: list[str], write: Callable[..., str], tmp_path: Path
) -> None:
    allowed, control, unlisted = names
    whole_lab.cluster.api.patch(node(control), {"metadata": {"labels": {ROLE: ""}}})
    file = write([allowed, control, "absent"])
    process = nodeproof("mark", "--cluster", file, allowed, control, unlisted, "absent", cwd=tmp_path)
    assert process.status == 2, process
    for name, reason in {
        control: "a control-plane node",
        unlisted: "does not list it",
        "absent": "no such Node",
    }.items():
        assert any(name in line and reason in line for line in process.stderr.splitlines()), process
    assert marks_of(whole_lab) == {}


def test_mark_of_another_user_is_kept(
    whole_lab: LabHandle, names: list[str], write: Callable[..., str], other_user: Path, tmp_path: Path
) -> None:
    other = nodeproof("mark", "--cluster", write(names, other_user), names[0], cwd=tmp_path)
    assert other.status == 0, other
    before = marks_of(whole_lab)
    process = nodeproof("mark", "--cluster", write(names), names[0], cwd=tmp_path)
    assert process.status == 2, process
    assert f"system:serviceaccount:default:{NAME}" in process.stderr
    assert marks_of(whole_lab) == before


@pytest.mark.parametrize("command", ["mark", "unmark"])
def test_inventory_of_another_cluster_is_refused(
    command: str, whole_lab: LabHandle, names: list[str], write: Callable[..., str], tmp_path: Path
) -> None:
    file = write(names, uid="6f0c1c1e-0000-4000-8000-000000000001")
    process = nodeproof(command, "--cluster", file, names[0], cwd=tmp_path)
    assert process.status == 2, process
    assert "another cluster" in process.stderr
    assert marks_of(whole_lab) == {}


def test_unverified_server_is_refused(
    served: Path, names: list[str], write: Callable[..., str], tmp_path: Path
) -> None:
    content = yaml.safe_load(served.read_text())
    for entry in content["clusters"]:
        entry["cluster"].pop("certificate-authority", None)
        entry["cluster"].pop("certificate-authority-data", None)
        entry["cluster"]["insecure-skip-tls-verify"] = True
    config = tmp_path / "insecure"
    config.write_text(yaml.safe_dump(content))
    config.chmod(0o600)
    process = nodeproof("mark", "--cluster", write(names, config), names[0], cwd=tmp_path)
    assert process.status == 2, process
    assert "insecure-skip-tls-verify" in process.stderr
