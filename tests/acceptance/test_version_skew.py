"""Two versions of Kubernetes in one cluster: older kubelets, and an upgrade."""

from __future__ import annotations

from pathlib import Path

from nodeproof.labs.client import starting
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.report import rundir
from tests.acceptance.altered import shipped
from tests.acceptance.command import TOP, nodeproof

TOPOLOGY = str(TOP / "infra" / "topology" / "older-kubelets.yaml")
OLDER = starting.read_topology(TOPOLOGY).entries[0].kubelet_version
CLAIM = "heartbeat.lease-interval"


def test_claims_conform_on_an_older_kubelet(tmp_path: Path) -> None:
    run, scenario = tmp_path / "run", shipped("heartbeat/test_lease.py")
    process = nodeproof(
        "run", "--nodes=2", f"--node-versions={OLDER}", f"--run={run}", scenario, cwd=tmp_path
    )
    assert process.status == 0
    rows = [row for row in rundir.read_verdicts(run) if row["claim"] == CLAIM]
    proven = [row for row in rows if row["verdict"] != "unproven"]
    assert [(row["verdict"], row["kubelet_version"]) for row in proven] == [("conforms", OLDER)]


def test_claims_conform_after_an_upgrade_while_a_node_is_unreachable(tmp_path: Path) -> None:
    run, scenario = tmp_path / "run", shipped("upgrade/test_control_plane.py")
    versions = (f"--kubernetes-version={OLDER}", f"--upgrade-to={DEFAULT_KUBERNETES_VERSION}")
    process = nodeproof(
        "run", "--nodes=2", *versions, f"--run={run}", scenario, "-k", "unreachable", cwd=tmp_path
    )
    assert process.status == 0
    outcomes = {(row["verdict"], row["upgraded_to"]) for row in rundir.read_verdicts(run)}
    assert outcomes == {("conforms", DEFAULT_KUBERNETES_VERSION)}
