"""Two versions of Kubernetes in one cluster: older kubelets, one of them altered, and an upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.overrides import NO_OVERRIDES
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.report import rundir
from tests.acceptance.altered import LATE_S, Cluster, run_scenarios, shipped
from tests.acceptance.command import TOP, nodeproof
from tests.acceptance.conftest import started
from tests.waiting import pause

TOPOLOGY = str(TOP / "infra" / "topology" / "older-kubelets.yaml")
OLDER = starting.read_topology(TOPOLOGY).entries[0].kubelet_version
CLAIM = "heartbeat.lease-interval"


@pytest.fixture
def skewed_lab(components: Components) -> Iterator[LabHandle]:
    """Return a lab of two zones: the kubelets of the first one are older."""
    overrides = replace(NO_OVERRIDES, node_versions=(OLDER, components.kubernetes_version))
    with started(components, 4, 2, overrides) as lab:
        yield lab


def older_kubelet_renews_late(cluster: Cluster) -> None:
    cluster.until_recorded()
    pause(LATE_S)
    cluster.pause("kubelet-node-1")
    pause(LATE_S)
    cluster.resume()


@pytest.mark.night("CI judges the claim on an older kubelet, and a compiled bug makes it deviate")
def test_altered_older_kubelet_deviates_on_its_own_node_only(skewed_lab: LabHandle, tmp_path: Path) -> None:
    verdicts = {}
    for zone in skewed_lab.fleet.zones():
        lab = registry.attach(skewed_lab.name)
        lab.restrict_to_zone(zone)
        result = run_scenarios(
            lab,
            tmp_path / zone,
            older_kubelet_renews_late,
            shipped("heartbeat/test_lease.py"),
            "-k",
            "quarter",
        )
        rows = [row for row in rundir.read_verdicts(result.run) if row["claim"] == CLAIM]
        verdicts[zone] = {(row["verdict"], row.get("kubelet_version", "")) for row in rows}
        lab.close()
    assert verdicts == {"zone-a": {("deviates", OLDER)}, "zone-b": {("conforms", "")}}


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
