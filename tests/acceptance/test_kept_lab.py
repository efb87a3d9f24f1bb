"""A lab that somebody keeps: a run leaves it as it is, and goes without what is out of service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.client.lab import Lab
from nodeproof.report import rundir
from tests.acceptance.altered import named, shipped
from tests.acceptance.command import nodeproof

CORDON, TWO_OF_THREE = shipped("cordon/test_cordon.py"), shipped("rate_limits/test_few_nodes.py")
LABEL, TAINT = "example.com/team", {"key": "example.com/team", "effect": "PreferNoSchedule"}


@pytest.fixture
def kept(lab: Lab) -> Iterator[Lab]:
    """A lab of whose first node its owner wants no more pods, and has marked it."""
    path = node_path(lab.fleet.node_names()[0])
    lab.cluster.api.patch(path, {"metadata": {"labels": {LABEL: "ours"}}, "spec": {"unschedulable": True}})
    yield lab
    lab.cluster.api.patch(
        path, {"metadata": {"labels": {LABEL: None}}, "spec": {"unschedulable": None, "taints": None}}
    )


def test_a_run_goes_without_a_node_that_is_cordoned_and_leaves_it_so(kept: Lab, tmp_path: Path) -> None:
    """It says so, and what needs that node is not proven."""
    cordoned, run = kept.fleet.node_names()[0], tmp_path / "run"
    command = ("run", "--no-site", "--lab", named(kept), "--again", "0", "--run", str(run))
    done = nodeproof(*command, CORDON, TWO_OF_THREE, cwd=tmp_path)
    found = kept.cluster.api.get(node_path(cordoned))
    rows = rundir.read_verdicts(run)
    assert {row["verdict"] for row in rows if row["claim"].startswith("cordon.")} == {"conforms"}
    few = [row for row in rows if row["claim"] == "rate-limits.minimum-three"]
    assert [f"left out: {cordoned} (cordoned)" in row["reason"] for row in few] == [True]
    assert f"leaves out {cordoned} (cordoned)" in done.stdout + done.stderr
    assert (found["spec"]["unschedulable"], found["metadata"]["labels"][LABEL]) == (True, "ours")


def test_a_run_leaves_a_taint_that_somebody_put_there(kept: Lab, tmp_path: Path) -> None:
    tainted = kept.fleet.node_names()[0]
    kept.cluster.api.patch(node_path(tainted), {"spec": {"unschedulable": None, "taints": [TAINT]}})
    run = str(tmp_path / "run")
    done = nodeproof("run", "--no-site", "--lab", named(kept), "--run", run, CORDON, cwd=tmp_path)
    taints = kept.cluster.api.get(node_path(tainted))["spec"]["taints"]
    assert done.status == 0
    assert f"leaves out {tainted} (tainted example.com/team:PreferNoSchedule)" in done.stdout + done.stderr
    assert [taint["key"] for taint in taints] == [TAINT["key"]]
