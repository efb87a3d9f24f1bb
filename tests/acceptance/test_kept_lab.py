"""A long-running lab: a run does not change it and leaves out cordoned and tainted nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client.handle import LabHandle
from nodeproof.report import rundir
from tests.acceptance.altered import lab_option, shipped
from tests.acceptance.command import nodeproof

CORDON, TWO_OF_THREE = shipped("cordon/test_cordon.py"), shipped("rate_limits/test_few_nodes.py")
LABEL, TAINT = "example.com/team", {"key": "example.com/team", "effect": "PreferNoSchedule"}


@pytest.fixture
def owned_lab(lab: LabHandle) -> Iterator[LabHandle]:
    """Return a lab whose first node is cordoned and labelled by its owner."""
    path = node_path(lab.fleet.node_names()[0])
    lab.cluster.api.patch(path, {"metadata": {"labels": {LABEL: "ours"}}, "spec": {"unschedulable": True}})
    yield lab
    lab.cluster.api.patch(
        path, {"metadata": {"labels": {LABEL: None}}, "spec": {"unschedulable": None, "taints": None}}
    )


def test_run_leaves_out_a_cordoned_node_and_keeps_it_cordoned(owned_lab: LabHandle, tmp_path: Path) -> None:
    """The run reports it, and claims that need that node are unproven."""
    cordoned, run = owned_lab.fleet.node_names()[0], tmp_path / "run"
    command = ("run", "--no-site", "--lab", lab_option(owned_lab), "--again", "0", "--run", str(run))
    process = nodeproof(*command, CORDON, TWO_OF_THREE, cwd=tmp_path)
    current = owned_lab.cluster.api.get(node_path(cordoned))
    rows = rundir.read_verdicts(run)
    assert {row["verdict"] for row in rows if row["claim"].startswith("cordon.")} == {"conforms"}
    few = [row for row in rows if row["claim"] == "rate-limits.minimum-three"]
    assert [f"left out: {cordoned} (cordoned)" in row["reason"] for row in few] == [True]
    assert f"leaves out {cordoned} (cordoned)" in process.stdout + process.stderr
    assert (current["spec"]["unschedulable"], current["metadata"]["labels"][LABEL]) == (True, "ours")


def test_run_keeps_a_foreign_taint(owned_lab: LabHandle, tmp_path: Path) -> None:
    tainted = owned_lab.fleet.node_names()[0]
    owned_lab.cluster.api.patch(node_path(tainted), {"spec": {"unschedulable": None, "taints": [TAINT]}})
    run = str(tmp_path / "run")
    process = nodeproof(
        "run", "--no-site", "--lab", lab_option(owned_lab), "--run", run, CORDON, cwd=tmp_path
    )
    taints = owned_lab.cluster.api.get(node_path(tainted))["spec"]["taints"]
    assert process.status == 0
    assert (
        f"leaves out {tainted} (tainted example.com/team:PreferNoSchedule)" in process.stdout + process.stderr
    )
    assert [taint["key"] for taint in taints] == [TAINT["key"]]
