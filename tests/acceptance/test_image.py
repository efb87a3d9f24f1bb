"""The image of `infra/ci/Containerfile`, built on a root file system of Debian, audits a lab and harms it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from nodeproof import proc
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.command import TOP, nodeproof, the_run
from tests.acceptance.own_cluster import FUTURE, OwnCluster, account, with_timers_and_flags
from tests.acceptance.test_run_on_a_cluster import STOPPED, check_judged_and_healed, listed
from tests.documented import commands

BUILD_TIMEOUT_S = 900.0
BASE, IMAGE = "localhost/debian", "localhost/nodeproof-audit"
RECIPE = TOP / "infra" / "ci" / "Containerfile"
FROM_HOST = ("/etc/ssl/certs", "/etc/pip.conf")
"""How pip reaches the index on this machine."""
ON_A_CLUSTER = TOP / "docs" / "how-to" / "harm-your-cluster.md"
UID = "65532"
WRITABLE_FOLDERS = ("/home/nodeproof", "/run/lock", "/var/tmp")
"""Folders of the image besides /tmp in which its user can write; a read-only container has none."""
PYTHON = "/opt/nodeproof/bin/python"
ADMINISTRATOR = {
    "metadata": {"name": "nodeproof-administrator"},
    "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
}

Program = Callable[..., str]


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Return `buildah(*arguments)`, with images below a folder of its own; it needs no container runtime."""
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on PATH: apt-get install {program}")
    folder = tmp_path_factory.mktemp("buildah")
    store = folder / "store"
    environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def run(*arguments: str) -> str:
        argv = ("buildah", "--root", str(store), "--runroot", str(folder / "runroot"), *arguments)
        return proc.run(argv, timeout_s=BUILD_TIMEOUT_S, cwd=TOP, env=environment).stdout.strip()

    yield run
    run("rm", "--all")
    run("rmi", "--all", "--force")
    # pytest keeps the folders of its last runs.
    shutil.rmtree(store)


@pytest.fixture(scope="module")
def in_image(buildah: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Build the image on Debian's root file system, and return `in_image(volumes, *arguments)`.

    It runs nodeproof in a container of the image, in which the user can write to /tmp and volumes alone.
    """
    folder = tmp_path_factory.mktemp("debian")
    argv = ("mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", "root.tar")
    proc.run(argv, timeout_s=BUILD_TIMEOUT_S, cwd=folder)
    (folder / "Containerfile").write_text("FROM scratch\nADD root.tar /\n")
    buildah("build", "--tag", BASE, str(folder))
    (folder / "root.tar").unlink()
    volumes = [f"--volume={path}:{path}:ro" for path in FROM_HOST if Path(path).exists()]
    options = [
        f"--file={RECIPE}",
        f"--ignorefile={RECIPE}.dockerignore",
        f"--build-arg=BASE={BASE}",
        *volumes,
    ]
    buildah("build", *options, "--target=audit", "--pull=never", f"--tag={IMAGE}", str(TOP))
    container = buildah("from", "--pull=never", IMAGE)
    entrypoint = buildah("inspect", "--format={{.OCIv1.Config.Entrypoint}}", container).strip("[]")
    assert buildah("run", container, "--", "id", "-u") == UID
    (empty := folder / "empty").mkdir()
    read_only = [f"--volume={empty}:{place}:ro" for place in WRITABLE_FOLDERS]

    def run(volumes: Iterable[str], *arguments: str) -> str:
        mounts = [*read_only, *(f"--volume={volume}" for volume in volumes)]
        return buildah("run", *mounts, container, "--", entrypoint, *arguments)

    return run


def arguments() -> list[str]:
    """Return the arguments of the CronJob's container; the last is the path of the kubeconfig."""
    *_others, cron_job = yaml.safe_load_all((TOP / "infra" / "ci" / "audit.yaml").read_text())
    (pod,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return list(pod["args"])


@pytest.mark.night("builds an image for minutes; test_audit.py audits a lab without one")
def test_image_audits_a_lab_as_a_user_without_root(
    whole_lab: LabHandle, served: Path, tmp_path: Path, in_image: Program
) -> None:
    role = yaml.safe_load(nodeproof("audit", "--rbac", cwd=tmp_path).stdout)
    with account(served, whole_lab, tmp_path, role) as kubeconfig:
        kubeconfig.chmod(0o644)
        output = in_image([f"{kubeconfig}:{arguments()[-1]}:ro"], *arguments(), "--format=json")
    assert {row["verdict"] for row in json.loads(output)["verdicts"]} == {"conforms", "unproven"}


def documented_run(folder: Path) -> tuple[list[str], list[str]]:
    """Return the volumes and the arguments of the documented container, whose files are in a folder."""
    (command,) = [entry.text for entry in commands(ON_A_CLUSTER) if entry.text.startswith("podman run ")]
    words = shlex.split(command.replace("$PWD", str(folder)))
    (image,) = [place for place, word in enumerate(words) if word.startswith("registry.example/")]
    volumes = [word.partition("=")[2] for word in words[:image] if word.startswith("--volume=")]
    return volumes, words[image + 1 :]


def use_container_paths(lab: LabHandle, folder: Path, place: str) -> None:
    """Rewrite the paths of an inventory and its ssh_config to those in the container; copy the lab's key."""
    key = lab.dir / "pki" / "ssh"
    shutil.copy(key, folder / "key")
    for path in (folder / "cluster.yaml", folder / "ssh_config"):
        text = path.read_text().replace(sys.executable, PYTHON).replace(str(key), f"{place}/key")
        path.write_text(text.replace(str(folder), place))
    for path in folder.iterdir():
        path.chmod(0o644)


@pytest.mark.night("builds an image for minutes; test_run_on_a_cluster.py runs without one")
def test_image_runs_on_a_cluster_as_a_user_without_root(
    whole_lab: LabHandle, served: Path, tmp_path: Path, in_image: Program
) -> None:
    cluster, reports = tmp_path / "cluster", tmp_path / "reports"
    cluster.mkdir()
    reports.mkdir()
    reports.chmod(0o777)
    volumes, (run, option, inventory, *others) = documented_run(tmp_path)
    socket, place = whole_lab.dir / "s", str(Path(inventory).parent)
    volumes.append(f"{socket}:{socket}")
    names = sorted(whole_lab.fleet.node_names())[:2]
    with (
        with_timers_and_flags(whole_lab),
        account(served, whole_lab, cluster, ADMINISTRATOR) as kubeconfig,
        listed(OwnCluster(whole_lab, cluster, kubeconfig)) as own,
    ):
        use_container_paths(whole_lab, cluster, place)
        socket.chmod(0o666)
        in_image(volumes, "mark", option, inventory, *names, "--until", FUTURE)
        in_image(volumes, run, option, inventory, *others, f"{place}/test_cluster.py")
        check_judged_and_healed(own, the_run(tmp_path), STOPPED, names[0])
