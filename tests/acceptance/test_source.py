"""A run on a checkout of Kubernetes: an edited line makes the claim about it deviate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts.build import Version, find_go, go_environment, required_go, staging_modules
from nodeproof.artifacts.components import recipe_dir
from nodeproof.model.pattern import Json
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.report import rundir
from tests.acceptance.command import nodeproof
from tests.checkouts import commit, contents

LEASE = "heartbeat.lease-interval"
KUBELET = "pkg/kubelet/kubelet.go"
FRACTION = "nodeLeaseRenewIntervalFraction = "
"""What part of its Lease's duration a kubelet waits before it renews the Lease."""
DOWNLOAD_TIMEOUT_S, RUN_TIMEOUT_S = 600.0, 3600.0


def download(module: str, version: str, cwd: Path) -> Path | None:
    """Return the folder of a module in Go's cache, or None if it is not published."""
    go = find_go(required_go((recipe_dir() / "go.mod").read_text()), recipe_dir(), print)
    argv = [go, "mod", "download", "-json", f"{module}@{version}"]
    output = proc.run(argv, timeout_s=DOWNLOAD_TIMEOUT_S, cwd=cwd, env=go_environment(), check=False).stdout
    answer: Json = json.loads(output)
    return Path(answer["Dir"]) if "Dir" in answer else None


def copy(source: Path, target: Path) -> None:
    """Copy the files of a module, which are read-only in Go's cache."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Assemble a repository of Kubernetes from its published modules."""
    folder, version = tmp_path / "kubernetes", Version.parse(DEFAULT_KUBERNETES_VERSION)
    top = download("k8s.io/kubernetes", str(version), tmp_path)
    assert top is not None
    copy(top, folder)
    for module in staging_modules((folder / "go.mod").read_text()):
        target = folder / "staging" / "src" / module
        if source := download(module, version.staging, tmp_path):
            copy(source, target)
        else:
            target.mkdir(parents=True)
            (target / "go.mod").write_text(f"module {module}\n")
    commit(folder, str(version))
    return folder


@pytest.mark.night("compiles Kubernetes for minutes; tests/go builds a small checkout")
@pytest.mark.alone
def test_claim_about_an_edited_line_deviates(checkout: Path, tmp_path: Path) -> None:
    kubelet, run = checkout / KUBELET, tmp_path / "run"
    text = kubelet.read_text()
    assert text.count(f"{FRACTION}0.25") == 1
    kubelet.write_text(text.replace(f"{FRACTION}0.25", f"{FRACTION}0.125"))
    before = contents(checkout)

    options = ("--no-site", "--run", str(run), "--source", str(checkout), "--claim", LEASE)
    completed = nodeproof("run", *options, "-k", "quarter", cwd=tmp_path, timeout_s=RUN_TIMEOUT_S)

    assert completed.status == 1
    rows = [row for row in rundir.read_verdicts(run) if row["claim"] == LEASE]
    assert {row["verdict"] for row in rows} == {"deviates"}
    facts = rundir.read_facts(run)
    assert "1 uncommitted change, content " in facts.overrides[0]
    assert {component["origin"] for component in facts.components.values()} == {"source"}
    assert facts.kubernetes_version == DEFAULT_KUBERNETES_VERSION
    assert contents(checkout) == before
