"""Bad input and failures: one clear line with the next step, exit code 2, nothing left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.labs.client import registry, starting
from nodeproof.model.problem import Problem
from nodeproof.root import root_prefix
from tests.acceptance.command import TOP, check_refused, nodeproof
from tests.acceptance.conftest import SMALL_SCENARIO

SCENARIO = str(TOP / "scenarios" / "monitoring")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--claim", "heartbeat.lease-intervall"), ("heartbeat.lease-interval", "no such claim")),
        (("run", "--lab", "vmware"), ("unknown lab 'vmware'", "process")),
        (("run", "--profile", "slow"), ("unknown profile 'slow'", "fast, documented")),
        (("run", "--kubernetes-version", "banana", SCENARIO), ("banana",)),
        (("run", "--nodes", "1000"), ("1000 nodes", "1 to 100")),
        (("up", "--nodes", "0"), ("0 nodes", "1 to 100")),
        (("up", "--nodes", "2", "--zones", "3"), ("3 zones",)),
        (("up", "--profile", "slow"), ("unknown profile",)),
        (("up", "--components", "/nonexistent"), ("no executable", "/nonexistent")),
        (("up", "--node-versions", "v1.99.0"), ("kubelet v1.99.0 is newer than kube-apiserver",)),
        (("kubectl", "--lab-name", "p-000000", "get", "nodes"), ("p-000000",)),
        (("recheck", "/nonexistent"), ("/nonexistent",)),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_bad_arguments_are_refused_in_one_line(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    check_refused(nodeproof(*arguments, cwd=tmp_path), *words)
    assert not list(tmp_path.glob("reports/out/*/labs/p-*"))


def test_unavailable_version_is_refused_in_one_line(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = nodeproof("components", "--kubernetes-version", "v1.36.999", cwd=tmp_path, env=env)
    check_refused(process, "v1.36.999")


def test_misspelt_need_is_refused_before_the_run(tmp_path: Path) -> None:
    """A scenario with an unknown need would be skipped in every run."""
    (tmp_path / "test_small.py").write_text(SMALL_SCENARIO.replace("faulted=1", 'features=("sytemd",)'))
    process = nodeproof("run", "test_small.py", cwd=tmp_path)
    scenario = "test_small.py::test_partitioned_node_is_noticed"
    check_refused(process, "unknown feature 'sytemd'", scenario, "systemd")
    assert not list(tmp_path.glob("reports/out/*"))


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    process = nodeproof("--debug", "up", "--profile", "slow", cwd=tmp_path)
    assert process.status == 2
    assert "Traceback" in process.stderr


def test_malformed_claim_is_named_with_file_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "mine.yaml").write_text("- id: mine.claim\n  area: 7\n  statement: [it is so]\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nnodeproof_claims = claims\n")
    process = nodeproof("run", cwd=tmp_path)
    check_refused(process, "mine.yaml:")


def _all_but_sudo(tool: str, path: str | None = None) -> str | None:
    return None if tool == "sudo" else f"{path}/{tool}"


def test_lab_without_root_or_sudo_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(shutil, "which", _all_but_sudo)
    with pytest.raises(Problem, match="needs root and there is no sudo"):
        root_prefix()


@pytest.mark.alone
def test_leftover_lab_is_swept_by_the_next_start(tmp_path: Path) -> None:
    name = starting.new_name()
    folder = RUNTIME_ROOT / name
    (folder / "logs").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "spec.json").write_text("{}")
    process = nodeproof("down", "--lab-name", name, cwd=tmp_path)
    assert process.status == 2
    assert name in registry.sweep()
    assert not folder.exists()
