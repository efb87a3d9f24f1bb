"""An audit of a lab as a user's own cluster: with its own user and only the rights of its role."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from nodeproof.audit import CLAIMS, MAX_PODS, TOLERATIONS
from nodeproof.cluster.resources import node
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.command import CompletedCommand, check_refused, nodeproof
from tests.acceptance.own_cluster import account, with_user
from tests.waiting import eventually

NAME, LOG_TIMEOUT_S = "nodeproof-audit", 20.0
WITHOUT_SUBJECT = {
    "cidr.unique",
    "conditions.pressure-unknown-when-unreachable",
    "cordon.taint",
    "monitoring.unknown-reason",
    "taints.noschedule-by-condition",
}
"""Claims about node states that an unaltered lab does not have."""
Audit = Callable[..., CompletedCommand]


@pytest.fixture(scope="module")
def kubeconfig(
    served: Path, shared_whole_lab: LabHandle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Write a kubeconfig of a user who has the rights that `--rbac` prints, and no other."""
    folder = tmp_path_factory.mktemp("audit")
    role = yaml.safe_load(nodeproof("audit", "--rbac", "--allow-nodes-proxy", cwd=folder).stdout)
    with account(served, shared_whole_lab, folder, role) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def audit(tmp_path: Path, kubeconfig: Path) -> Audit:
    """Return `audit(*arguments)`, which audits the lab in a folder of its own."""
    return lambda *arguments: nodeproof("audit", "--kubeconfig", str(kubeconfig), *arguments, cwd=tmp_path)


def test_unaltered_lab_conforms_and_nothing_is_written(
    whole_lab: LabHandle, audit: Audit, tmp_path: Path
) -> None:
    process = audit("--format", "json", "--allow-nodes-proxy", "--run", "run")
    assert process.status == 0, process
    first_line = process.stderr.splitlines()[0]
    assert all(word in first_line for word in ("context ", "server https://127.0.0.1:", "user "))
    content = json.loads(process.stdout)
    labels = {row["claim"]: row["code"] or row["verdict"] for row in content["verdicts"]}
    expected = dict.fromkeys(set(CLAIMS) - WITHOUT_SUBJECT, "conforms") | {TOLERATIONS: "settings-unknown"}
    assert labels == expected
    settings = {entry["name"]: entry["value"] for entry in content["settings"]}
    assert settings["nodeLeaseDurationSeconds"] == "8"
    assert settings["default toleration of Unreachable (s)"] == "10"
    assert settings["kubelet nodeStatusUpdateFrequency"] == "2s"
    assert settings["kube-controller-manager node-monitor-period"] is None
    eventually(lambda: writes_by(whole_lab, NAME), LOG_TIMEOUT_S)
    assert [uri for uri in writes_by(whole_lab, NAME) if "dryRun=All" not in uri] == []
    assert writes_by(whole_lab, NAME)
    assert nodeproof("recheck", "run", "--no-site", cwd=tmp_path).status == 0
    assert nodeproof("page", "run", cwd=tmp_path).status == 0
    assert all(
        name in (tmp_path / "run" / "site" / "page.html").read_text() for name in ("Node-1", "Cluster")
    )


def writes_by(lab: LabHandle, account: str) -> list[str]:
    """Return the URIs of a ServiceAccount's requests other than reads, which the lab does not log."""
    user = f"system:serviceaccount:default:{account}"
    lines = [line for log in lab.life.logs.glob("audit*.jsonl") for line in log.read_text().splitlines()]
    events = [json.loads(line) for line in lines if user in line and line.endswith("}")]
    return [event["requestURI"] for event in events if event["verb"] not in ("get", "list", "watch")]


@contextmanager
def with_phase(lab: LabHandle, name: str) -> Iterator[None]:
    """Set the phase of a Node, which its kubelet does not overwrite."""
    status = f"{node(name)}/status"
    lab.cluster.api.patch(status, {"status": {"phase": "Running"}})
    try:
        yield
    finally:
        lab.cluster.api.patch(status, {"status": {"phase": None}})


def test_only_the_altered_node_deviates(whole_lab: LabHandle, audit: Audit) -> None:
    name = whole_lab.fleet.nodes()[0].name
    with with_phase(whole_lab, name):
        process = audit("--format", "junit", "--claim", "conditions.node-phase", "--claim", "capacity.fields")
    assert process.status == 1, process
    (failure,) = [line for line in process.stdout.splitlines() if "<failure" in line]
    assert f"status.phase of {name} is Running" in failure


def test_kubelets_are_read_from_them_on_request(served: Path, whole_lab: LabHandle, tmp_path: Path) -> None:
    """The role without nodes/proxy suffices in the network of the nodes. From outside, none is asked."""
    role = yaml.safe_load(nodeproof("audit", "--rbac", "--read-kubelets", cwd=tmp_path).stdout)
    role["metadata"]["name"] = f"{NAME}-of-kubelets"
    options = ("--format", "json", "--claim", MAX_PODS)
    with account(served, whole_lab, tmp_path, role) as kubeconfig:
        outside = nodeproof("audit", "--kubeconfig", str(kubeconfig), *options, cwd=tmp_path)
        content = yaml.safe_load(kubeconfig.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://{API_ADDRESS}:{API_PORT}"
        kubeconfig.write_text(yaml.safe_dump(content))
        program = (
            "env",
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}",
            sys.executable,
            "-m",
            "nodeproof.cli",
        )
        command = (*program, "audit", "--read-kubelets", "--kubeconfig", str(kubeconfig), *options)
        inside = nodeproof("exec", "--lab-name", whole_lab.name, "--", *command, cwd=tmp_path)
    assert (outside.status, inside.status) == (3, 0), (outside, inside)
    labels = [
        {row["code"] or row["verdict"] for row in json.loads(process.stdout)["verdicts"]}
        for process in (outside, inside)
    ]
    assert labels == [{"settings-unknown"}, {"conforms"}]


@pytest.mark.parametrize(
    ("token", "server", "words"),
    [
        ("t", "https://127.0.0.1:1", ("does not answer", "127.0.0.1", "address in the kubeconfig")),
        ("unknown", "", ("refuses", "audit --rbac")),
    ],
)
def test_unreachable_or_refusing_server_gives_one_line(
    served: Path, tmp_path: Path, token: str, server: str, words: tuple[str, ...]
) -> None:
    config = with_user(served, tmp_path / "config", {"token": token}, server)
    process = nodeproof("audit", "--kubeconfig", str(config), cwd=tmp_path)
    check_refused(process, *words)
    assert process.stdout == ""
