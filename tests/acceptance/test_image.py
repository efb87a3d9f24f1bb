"""The image of `infra/ci/Containerfile`, built on a root file system of Debian, audits a lab."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from nodeproof import proc
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.accounts import account
from tests.acceptance.command import TOP, nodeproof

BUILD_TIMEOUT_S = 900.0
BASE, IMAGE = "localhost/debian", "localhost/nodeproof-audit"
RECIPE = TOP / "infra" / "ci" / "Containerfile"
FROM_HOST = ("/etc/ssl/certs", "/etc/pip.conf")
"""How pip reaches the index on this machine."""
UID = "65532"

Buildah = Callable[..., str]


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
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


def build(buildah: Buildah, folder: Path) -> str:
    """Build the image on Debian's root file system, and return the name of a container of it."""
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
    return buildah("from", "--pull=never", IMAGE)


def arguments() -> list[str]:
    """Return the arguments of the CronJob's container; the last is the path of the kubeconfig."""
    *_others, cron_job = yaml.safe_load_all((TOP / "infra" / "ci" / "audit.yaml").read_text())
    (pod,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return list(pod["args"])


@pytest.mark.night("builds an image for minutes; test_audit.py audits a lab without one")
def test_image_audits_a_lab_as_a_user_without_root(
    whole_lab: LabHandle, served: Path, tmp_path: Path, buildah: Buildah
) -> None:
    (context := tmp_path / "debian").mkdir()
    container = build(buildah, context)
    entrypoint = buildah("inspect", "--format={{.OCIv1.Config.Entrypoint}}", container).strip("[]")
    role = yaml.safe_load(nodeproof("audit", "--rbac", cwd=tmp_path).stdout)
    with account(served, whole_lab, tmp_path, role) as kubeconfig:
        kubeconfig.chmod(0o644)
        volume = f"--volume={kubeconfig}:{arguments()[-1]}:ro"
        assert buildah("run", container, "--", "id", "-u") == UID
        output = buildah("run", volume, container, "--", entrypoint, *arguments(), "--format=json")
    assert {row["verdict"] for row in json.loads(output)["verdicts"]} == {"conforms", "unproven"}
