"""The command `plan --cluster` and the options of a run against a small API server with a pod on a Node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodeproof.session.options import Options, resolve
from tests.unit.in_process import Call
from tests.unit.own_cluster import Cluster, handler_of, named_like, serving
from tests.unit.test_marks import NAME

PLAN = ("plan", "--cluster", "cluster.yaml")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Serve a cluster, and make the folder of its kubeconfig and inventory the working folder."""
    cluster = Cluster()
    monkeypatch.chdir(tmp_path)
    with serving(handler_of(cluster), tmp_path, ["partition", "unit-down"]):
        yield cluster


def test_faults_with_the_same_effect_are_one_entry(cluster: Cluster, call: Call) -> None:
    lines = call(*PLAN).out.splitlines()
    assert lines[:3] == [NAME, "  partition, unit-down: can be injected", "    pods: default/web-1"]


def test_eviction_is_a_dry_run_by_query_and_body(cluster: Cluster, call: Call) -> None:
    assert call(*PLAN).status == 0
    ((path, body),) = cluster.writes
    assert path == "/api/v1/namespaces/default/pods/web-1/eviction?dryRun=All"
    assert body["deleteOptions"] == {"dryRun": ["All"]}


@pytest.mark.parametrize(
    ("status", "message"),
    [(429, "over the budget"), (500, "two budgets"), (403, "denied by a webhook"), (400, "denied, too")],
)
def test_refused_eviction_is_a_reason(cluster: Cluster, call: Call, status: int, message: str) -> None:
    cluster.status, cluster.message = status, message
    output = call(*PLAN)
    assert f"refused: the API server refuses to evict default/web-1: HTTP {status}: {message}" in output.out
    assert "2 of 2 allowed faults refused" in output.refusal


def test_missing_right_is_a_problem_and_no_reason(cluster: Cluster, call: Call) -> None:
    cluster.status, cluster.message = 403, 'User "u" cannot create resource "pods/eviction"'
    output = call(*PLAN)
    assert output.out == ""
    assert "create on pods/eviction" in output.refusal


def test_pod_that_ended_meanwhile_refuses_nothing(cluster: Cluster, call: Call) -> None:
    cluster.status = 404
    assert call(*PLAN).status == 0


def test_fault_that_no_run_can_inject_is_refused(cluster: Cluster, call: Call, tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.yaml"
    inventory.write_text(inventory.read_text().replace("- partition", "- clock"))
    output = call(*PLAN)
    assert "  clock: refused\n    refused: not available on somebody's own cluster yet: clock" in output.out
    assert "  unit-down: can be injected" in output.out
    assert "1 of 2 allowed faults refused" in output.refusal


@pytest.mark.parametrize(
    ("may", "other", "named"),
    [
        (["partition", "unit-down"], ["partition"], []),
        (["unit-down", "swap"], ["clock", "swap"], ["clock, swap"]),
    ],
)
def test_run_names_the_faults_that_it_cannot_inject(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    may: list[str],
    other: list[str],
    named: list[str],
) -> None:
    path = tmp_path / "cluster.yaml"
    cluster.nodes.append(named_like(cluster.nodes[0], "worker-8"))
    nodes = {NAME: {"may": may}, "worker-8": {"may": other}}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"nodes": nodes}))
    resolve(Options(cluster=str(path)))
    printed = capsys.readouterr().err
    assert re.findall(r"not available on somebody's own cluster yet: (.*) \(only", printed) == named


def test_silent_machine_refuses_every_fault_with_ssh(cluster: Cluster, call: Call, tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.yaml"
    inventory.write_text(inventory.read_text().replace("  config: config", "  config: ssh_config"))
    (tmp_path / "ssh_config").write_text("ProxyCommand false\n")
    output = call(*PLAN, "--ssh")
    assert "refused: its machine does not answer as root over SSH" in output.out
    assert "2 of 2 allowed faults refused" in output.refusal


def test_ssh_without_an_inventory_is_refused(call: Call) -> None:
    assert "--ssh needs --cluster" in call("plan", "--ssh").refusal


def test_options_of_a_run_are_refused(cluster: Cluster, call: Call) -> None:
    assert "unknown with --cluster: -n 3" in call(*PLAN, "-n", "3").refusal
    assert cluster.writes == []
