"""A cluster by kubeadm, used as its owner would: by admin.conf, ssh_config and an inventory alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import node
from nodeproof.faults.fault import succeeds
from nodeproof.labs.base.profiles import DOCUMENTED
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.outside import serve_api
from nodeproof.labs.kinds.kubeadm.kind import KUBEADM
from nodeproof.labs.kinds.kubeadm.nodes import CONTROL_PLANE
from nodeproof.report import rundir
from tests.acceptance.command import nodeproof, steps, the_run
from tests.acceptance.test_own_cluster import FUTURE
from tests.acceptance.test_run_on_a_cluster import CLAIMS, SCENARIOS

Json = Any
SERVE_TIMEOUT_S, RUN_TIMEOUT_S, WORKLOADS_TIMEOUT_S = 20.0, 600.0, 300.0
JUDGED_BY_AUDIT = 15
"""At least: by an audit without rights on nodes/proxy and without pods of its own."""
TAINT = "node-role.kubernetes.io/control-plane"


@pytest.fixture(scope="module")
def lab(components: Components) -> Iterator[LabHandle]:
    """Start a control plane and two workers."""
    request = starting.LabRequest(starting.new_name(), 2, 1, DOCUMENTED.name, False, KUBEADM.name)
    messages: list[str] = []
    lab = starting.up(request, components, messages.append)
    try:
        steps = [message.partition(" is up; kubeadm ") for message in messages]
        assert [name for name, is_step, _ in steps if is_step] == ["cp-1", "node-1", "node-2"]
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="module")
def kubeconfig(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return kubeadm's admin.conf, with the port on loopback where the API is served."""
    ready: SimpleQueue[int] = SimpleQueue()
    arguments = (lab, 0, lambda port, _path: ready.put(port))
    threading.Thread(target=serve_api, args=arguments, daemon=True).start()
    content = yaml.safe_load((lab.dir / "pki" / "admin.conf").read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{ready.get(timeout=SERVE_TIMEOUT_S)}"
    path = tmp_path_factory.mktemp("owner") / "admin.conf"
    path.write_text(yaml.safe_dump(content))
    return path


def objects(lab: LabHandle, path: str) -> dict[str, Json]:
    return {entry["metadata"]["name"]: entry for entry in lab.cluster.api.get(path)["items"]}


def test_kubeadm_did_all_of_it(lab: LabHandle) -> None:
    control_plane = objects(lab, "/api/v1/nodes")[CONTROL_PLANE.name]
    assert {taint["key"] for taint in control_plane["spec"]["taints"]} == {TAINT}
    pods = objects(lab, "/api/v1/namespaces/kube-system/pods")
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        annotations = pods[f"{component}-{CONTROL_PLANE.name}"]["metadata"]["annotations"]
        assert annotations["kubernetes.io/config.source"] == "file"
    wait = ["wait", "--namespace=kube-system", "--for=condition=Ready", "pod", "--all"]
    limit = f"--timeout={WORKLOADS_TIMEOUT_S:g}s"
    assert lab.cluster.run_kubectl([*wait, limit], WORKLOADS_TIMEOUT_S, "")["status"] == 0
    sets = objects(lab, "/apis/apps/v1/namespaces/kube-system/daemonsets")
    assert sets["kube-proxy"]["status"]["numberReady"] == 3
    machine = lab.fleet.machine("node-1")
    assert succeeds(machine, "grep", "-q", "^kind: KubeletConfiguration", "/var/lib/kubelet/config.yaml")


def test_it_is_no_node_of_the_lab(lab: LabHandle) -> None:
    assert lab.fleet.node_names() == ["node-1", "node-2"]
    assert not lab.fleet.has(CONTROL_PLANE.name)


def test_audit_judges_it(kubeconfig: Path, tmp_path: Path) -> None:
    process = nodeproof("audit", "--kubeconfig", str(kubeconfig), "--format", "json", cwd=tmp_path)
    assert process.status == 0, process
    content = json.loads(process.stdout)
    verdicts = [row["verdict"] for row in content["verdicts"]]
    assert verdicts.count("conforms") >= JUDGED_BY_AUDIT
    settings = {entry["name"]: entry["value"] for entry in content["settings"]}
    assert settings["kube-controller-manager node-monitor-grace-period"] == "50s"


def test_stopped_kubelet_is_judged_and_healed(lab: LabHandle, kubeconfig: Path, tmp_path: Path) -> None:
    pki = lab.dir / "pki"
    content = {
        "cluster": {
            "kubeconfig": str(kubeconfig),
            "context": yaml.safe_load(kubeconfig.read_text())["current-context"],
            "uid": lab.cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"],
        },
        "ssh": {"config": str(pki / "ssh_config"), "known_hosts": str(pki / "known_hosts")},
        "nodes": {name: {"may": ["unit-down"]} for name in lab.fleet.node_names()},
    }
    (tmp_path / "cluster.yaml").write_text(json.dumps(content))
    (tmp_path / "test_cluster.py").write_text(SCENARIOS)
    mark = ("mark", "--cluster", "cluster.yaml", *content["nodes"], "--until", FUTURE)
    process = nodeproof(*mark, cwd=tmp_path)
    assert process.status == 0, process
    run = ("run", "--cluster", "cluster.yaml", "--no-site", "test_cluster.py", "-k", "stopped")
    process = nodeproof(*run, cwd=tmp_path, timeout_s=RUN_TIMEOUT_S)
    assert process.status == 0, process
    folder = the_run(tmp_path)
    assert folder is not None
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(folder)}
    assert verdicts == dict.fromkeys(CLAIMS, ("conforms", None))
    assert steps(folder)[-1] == "closed"
    lab.wait_nodes_ready()
    for name in content["nodes"]:
        assert lab.cluster.api.get(node(name))["spec"].get("unschedulable") is None
