"""A kubeadm cluster, used as its owner would: by admin.conf, ssh_config and an inventory alone."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from nodeproof import proc
from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import POD_NAMESPACE, node
from nodeproof.cluster.workloads import WITNESS_IMAGE
from nodeproof.faults.fault import succeeds
from nodeproof.labs.base.profiles import DOCUMENTED
from nodeproof.labs.base.spec import API_ADDRESS
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.outside import serve_api
from nodeproof.labs.kinds.kubeadm.kind import KUBEADM
from nodeproof.labs.kinds.kubeadm.nodes import CONTROL_PLANE
from nodeproof.machines.machine import checked
from nodeproof.machines.openssh import OpenSsh, strict_config
from nodeproof.report import rundir
from nodeproof.root import root_prefix
from tests.acceptance.bmc import PASSWORD, PASSWORD_ENV, serving_power
from tests.acceptance.command import nodeproof, steps, the_run
from tests.acceptance.own_cluster import FUTURE
from tests.acceptance.test_run_on_a_cluster import (
    CLAIMS,
    LOSS_CLAIMS,
    PARTITION_CLAIMS,
    PARTITION_SCENARIO,
    POWER_SCENARIO,
    SCENARIOS,
)

Json = Any
SERVE_TIMEOUT_S, RUN_TIMEOUT_S, WORKLOADS_TIMEOUT_S = 20.0, 900.0, 300.0
JUDGED_BY_AUDIT = 15
"""The least number of claims judged by an audit without rights on nodes/proxy and without pods."""
BMC_PORT, INSTALL_TIMEOUT_S = 6230, 30.0
RELAY = """
import socket, socketserver, sys
class Relay(socketserver.StreamRequestHandler):
    def handle(self):
        with socket.socket(socket.AF_UNIX) as bmc:
            bmc.connect(sys.argv[3])
            bmc.sendall(self.rfile.readline())
            self.wfile.write(bmc.makefile("rb").readline())
socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), Relay).serve_forever()
"""
GUEST_CLIENT = f"""#!/bin/bash
exec 3<>/dev/tcp/{API_ADDRESS}/{BMC_PORT}
echo "$2 $3 $(cat)" >&3
read -r answer <&3
echo "$answer"
[ "$answer" = on ] || [ "$answer" = off ]
"""
INSTALL = 'mkdir -p "${0%/*}" && cat >"$0" && chmod 755 "$0"'
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


def test_kubeadm_sets_up_the_whole_cluster(lab: LabHandle) -> None:
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


def test_control_plane_is_no_node_of_the_lab(lab: LabHandle) -> None:
    assert lab.fleet.node_names() == ["node-1", "node-2"]
    assert not lab.fleet.has(CONTROL_PLANE.name)


def test_audit_judges_a_kubeadm_cluster(kubeconfig: Path, tmp_path: Path) -> None:
    process = nodeproof("audit", "--kubeconfig", str(kubeconfig), "--format", "json", cwd=tmp_path)
    assert process.status == 0, process
    content = json.loads(process.stdout)
    verdicts = [row["verdict"] for row in content["verdicts"]]
    assert verdicts.count("conforms") >= JUDGED_BY_AUDIT
    settings = {entry["name"]: entry["value"] for entry in content["settings"]}
    assert settings["kube-controller-manager node-monitor-grace-period"] == "50s"


def mark_nodes(lab: LabHandle, kubeconfig: Path, folder: Path, entries: Json) -> None:
    """Write an inventory with these entries, as its owner would, and mark its nodes."""
    pki = lab.dir / "pki"
    content = {
        "cluster": {
            "kubeconfig": str(kubeconfig),
            "context": yaml.safe_load(kubeconfig.read_text())["current-context"],
            "uid": lab.cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"],
        },
        "ssh": {"config": str(pki / "ssh_config"), "known_hosts": str(pki / "known_hosts")},
        **entries,
    }
    (folder / "cluster.yaml").write_text(json.dumps(content))
    process = nodeproof("mark", "--cluster", "cluster.yaml", *content["nodes"], "--until", FUTURE, cwd=folder)
    assert process.status == 0, process


def check_run(lab: LabHandle, folder: Path, scenario: str, claims: Collection[str]) -> None:
    """Run a scenario, and check its verdicts and that nothing of it is left."""
    (folder / "test_cluster.py").write_text(scenario)
    run = ("run", "--cluster", "cluster.yaml", "--no-site", "test_cluster.py", "-k", "stopped or pod")
    process = nodeproof(*run, cwd=folder, timeout_s=RUN_TIMEOUT_S)
    assert process.status == 0, process
    run_folder = the_run(folder)
    assert run_folder is not None
    verdicts = {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(run_folder)}
    assert verdicts == dict.fromkeys(claims, ("conforms", None))
    assert steps(run_folder)[-1] == "closed"
    lab.wait_nodes_ready()
    for name in lab.fleet.node_names():
        assert lab.cluster.api.get(node(name))["spec"].get("unschedulable") is None


def test_stopped_kubelet_is_judged_and_healed(lab: LabHandle, kubeconfig: Path, tmp_path: Path) -> None:
    nodes = {name: {"may": ["unit-down"]} for name in lab.fleet.node_names()}
    mark_nodes(lab, kubeconfig, tmp_path, {"nodes": nodes})
    check_run(lab, tmp_path, SCENARIOS, CLAIMS)


def test_partitions_are_judged_and_pods_run(lab: LabHandle, kubeconfig: Path, tmp_path: Path) -> None:
    nodes = {name: {"may": ["partition"]} for name in lab.fleet.node_names()}
    mark_nodes(lab, kubeconfig, tmp_path, {"nodes": nodes, "pods": {"image": WITNESS_IMAGE}})
    check_run(lab, tmp_path, PARTITION_SCENARIO, PARTITION_CLAIMS)
    assert POD_NAMESPACE not in objects(lab, "/api/v1/namespaces")


def test_power_cut_is_judged_and_healed(
    lab: LabHandle, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = lab.fleet.node_names()
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    with serving_power(lab.name, tmp_path) as driver, bmc_relay(lab, tmp_path):
        entries = {
            "nodes": {target: {"may": ["power-off"], "power": "bmc"}, other: {"may": ["unit-down"]}},
            "power": {"bmc": {**driver, "switch": CONTROL_PLANE.name}},
        }
        mark_nodes(lab, kubeconfig, tmp_path, entries)
        before = lab.fleet.machine(target).boot_id()
        check_run(lab, tmp_path, POWER_SCENARIO, LOSS_CLAIMS)
    assert lab.fleet.machine(target).boot_id() != before


@contextmanager
def bmc_relay(lab: LabHandle, folder: Path) -> Iterator[None]:
    """Relay a port in the lab's network to the BMC, and give the switch host a client for it."""
    network = registry.client(lab.name).network()
    enter = [*root_prefix(), "nsenter", f"--net=/proc/{os.getpid()}/fd/{network}", "--"]
    relay = [*enter, sys.executable, "-I", "-c", RELAY, API_ADDRESS, str(BMC_PORT), str(folder / "bmc")]
    process = proc.start(relay, log=folder / "relay.log")
    pki = lab.dir / "pki"
    try:
        with strict_config(pki / "ssh_config", pki / "known_hosts") as config:
            host, argv = OpenSsh(CONTROL_PLANE.name, config), ["sh", "-c", INSTALL, str(folder / "bmc.py")]
            checked(host.run(argv, timeout_s=INSTALL_TIMEOUT_S, stdin=GUEST_CLIENT), host.host)
        yield
    finally:
        process.kill()
        process.wait()
        os.close(network)
