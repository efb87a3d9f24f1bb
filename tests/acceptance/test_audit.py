"""An audit of a lab as somebody's own cluster: with its own user and only the rights of its role."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import proc
from nodeproof.audit.running import CLAIMS, TOLERATIONS
from nodeproof.cluster.resources import node
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.accounts import account, with_user
from tests.acceptance.command import TOP, CompletedCommand, nodeproof
from tests.waiting import eventually

Json = Any
NAME, LOG_TIMEOUT_S = "nodeproof-audit", 20.0
ABOUT_PROBLEMS = {
    "cidr.unique",
    "conditions.pressure-unknown-when-unreachable",
    "cordon.taint",
    "monitoring.unknown-reason",
    "taints.noschedule-by-condition",
}
"""Claims for which an unaltered lab has no node in the state that they are about."""
Audit = Callable[..., CompletedCommand]


@pytest.fixture(scope="module")
def kubeconfig(
    served: Path, altered_whole: LabHandle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Write a kubeconfig of a user who has the rights that `--rbac` prints, and no other."""
    folder = tmp_path_factory.mktemp("audit")
    role = yaml.safe_load(nodeproof("audit", "--rbac", "--allow-nodes-proxy", cwd=folder).stdout)
    with account(served, altered_whole, folder, role) as kubeconfig:
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
    expected = dict.fromkeys(set(CLAIMS) - ABOUT_PROBLEMS, "conforms") | {TOLERATIONS: "settings-unknown"}
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


def writes_by(lab: LabHandle, account: str) -> list[str]:
    """Return the URIs of a ServiceAccount's requests other than reads, which the lab does not log."""
    user = f"system:serviceaccount:default:{account}"
    lines = [line for log in lab.life.logs.glob("audit*.jsonl") for line in log.read_text().splitlines()]
    events = [json.loads(line) for line in lines if user in line and line.endswith("}")]
    return [event["requestURI"] for event in events if event["verb"] not in ("get", "list", "watch")]


@contextmanager
def with_phase(lab: LabHandle, name: str) -> Iterator[None]:
    """Set the phase of a Node, which its kubelet leaves alone."""
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


def _is_one_line(process: CompletedCommand, *words: str) -> None:
    assert process.status == 2, process
    assert process.stdout == ""
    *_first, line = process.stderr.splitlines()
    assert all(word in line for word in words), process
    assert "Traceback" not in process.stderr


def test_unreachable_server_gives_one_line(served: Path, tmp_path: Path) -> None:
    config = with_user(served, tmp_path / "config", {"token": "t"}, "https://127.0.0.1:1")
    process = nodeproof("audit", "--kubeconfig", str(config), cwd=tmp_path)
    _is_one_line(process, "does not answer", "127.0.0.1", "address in the kubeconfig")


def test_user_without_permissions_gets_a_list_of_the_required_ones(served: Path, tmp_path: Path) -> None:
    config = with_user(served, tmp_path / "config", {"token": "unknown"})
    _is_one_line(nodeproof("audit", "--kubeconfig", str(config), cwd=tmp_path), "refuses", "audit --rbac")


@pytest.mark.parametrize("content", ["", "{", "clusters: []"])
def test_bad_kubeconfig_gives_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(content)
    process = nodeproof("audit", "--kubeconfig", "config", cwd=tmp_path)
    _is_one_line(process, "the kubeconfig cannot be used", "config")


BUILD_TIMEOUT_S = 900.0
BASE, IMAGE = "localhost/debian", "localhost/nodeproof-audit"
FROM_HOST = ("/etc/ssl/certs", "/etc/pip.conf")
"""How pip reaches the index on this machine."""


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return `buildah(*arguments)`, with images below a folder of its own; it needs no container runtime."""
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on PATH: apt-get install {program}")
    store = tmp_path / "store"
    environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def run(*arguments: str) -> str:
        argv = ("buildah", "--root", str(store), "--runroot", str(tmp_path / "runroot"), *arguments)
        return proc.run(argv, timeout_s=BUILD_TIMEOUT_S, cwd=TOP, env=environment).stdout.strip()

    yield run
    run("rm", "--all")
    run("rmi", "--all", "--force")
    # pytest keeps the folders of its last runs.
    shutil.rmtree(store)


def debian(tmp_path: Path, buildah: Callable[..., str]) -> str:
    """Make an image of Debian's root file system; return its name."""
    context = tmp_path / "debian"
    context.mkdir()
    mirror = filter(None, [os.environ.get("NODEPROOF_DEBIAN_MIRROR")])
    argv = ("mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", "root.tar", *mirror)
    proc.run(argv, timeout_s=BUILD_TIMEOUT_S, cwd=context)
    (context / "Containerfile").write_text("FROM scratch\nADD root.tar /\n")
    buildah("build", "--tag", BASE, str(context))
    (context / "root.tar").unlink()
    return BASE


@pytest.mark.night("builds an image for minutes; the other tests audit a lab without one")
def test_image_audits_a_lab_as_a_user_without_root(
    whole_lab: LabHandle, kubeconfig: Path, tmp_path: Path, buildah: Callable[..., str]
) -> None:
    volumes = [f"--volume={path}:{path}:ro" for path in FROM_HOST if Path(path).exists()]
    recipe = TOP / "infra" / "ci" / "Containerfile"
    arguments = [f"--file={recipe}", f"--ignorefile={recipe}.dockerignore", "--target=audit", "--pull=never"]
    base = f"--build-arg=BASE={debian(tmp_path, buildah)}"
    buildah("build", *arguments, base, *volumes, f"--tag={IMAGE}", str(TOP))
    container = buildah("from", "--pull=never", IMAGE)
    entrypoint = buildah("inspect", "--format={{.OCIv1.Config.Entrypoint}}", container).strip("[]")

    *_others, cron_job = yaml.safe_load_all((TOP / "infra" / "ci" / "audit.yaml").read_text())
    (pod,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    readable = tmp_path / "kubeconfig"
    shutil.copyfile(kubeconfig, readable)
    readable.chmod(0o644)
    volume = f"--volume={readable}:{pod['args'][-1]}:ro"
    assert buildah("run", container, "--", "id", "-u") == "65532"
    output = buildah("run", volume, container, "--", entrypoint, *pod["args"], "--format=json")
    verdicts = {row["verdict"] for row in json.loads(output)["verdicts"]}
    assert verdicts == {"conforms", "unproven"}
