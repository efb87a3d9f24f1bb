"""Claims about what a machine has room for: they conform on it as it is, and fall where it does otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.cluster.workloads import create_pod
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import refused
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.conftest import Run
from tests.vm.test_claims_on_machines import deviating, status_refused

OF_ITS_OWN = shipped("scheduling/test_machine_of_its_own.py")
RESERVED = ("-k", "reserved")
IN_RESERVED = {"capacity.allocatable-formula", "scheduling.reserve-for-daemons"}
COUNTED = ("-k", "counts")
IN_COUNTED = {"scheduling.counts-kubelet-containers", "scheduling.ignores-foreign"}
PRESSURE = shipped("conditions/test_pressure.py")
IN_PRESSURE = {
    *(f"conditions.{name}" for name in ("memory-pressure", "disk-pressure", "pid-pressure")),
    "conditions.pressure-damping",
}
FALL = IN_RESERVED | IN_COUNTED | IN_PRESSURE
"""Every claim that falls here."""


def nobody_hears_of_static_pods(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    own = {"name": "own", "expression": f"request.userInfo.username == 'system:node:{cluster.target}'"}
    with refused(cluster, [rule], [own]):
        cluster.over.wait()


def somebody_counts_foreign_work(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    create_pod(cluster.lab.cluster.api, cluster.target, (), by_scheduler=False, requests={"cpu": "100m"})


@pytest.mark.parametrize("scenario", [OF_ITS_OWN, PRESSURE], ids=["of-its-own", "pressure"])
def test_what_a_machine_has_room_for_is_as_claimed(lab: Lab, run: Run, scenario: str) -> None:
    ended = run(lab, unaltered, scenario)

    assert {label for claim in ended.claims() for label in ended.labels(claim)} == {"conforms"}
    assert ended.status == 0


@pytest.mark.parametrize(
    ("scenario", "claims"),
    [((OF_ITS_OWN, *RESERVED), IN_RESERVED), ((PRESSURE,), IN_PRESSURE)],
    ids=["reserved", "pressure"],
)
def test_a_kubelet_of_which_nobody_hears_what_it_has(
    lab: Lab, run: Run, tmp_path: Path, scenario: tuple[str, ...], claims: set[str]
) -> None:
    with status_refused(Cluster(lab, tmp_path)):
        ended = run(lab, unaltered, *scenario)

    assert deviating(ended) == claims
    assert ended.status == 1


@pytest.mark.parametrize(
    ("claim", "alter"),
    [
        ("scheduling.counts-kubelet-containers", nobody_hears_of_static_pods),
        ("scheduling.ignores-foreign", somebody_counts_foreign_work),
    ],
)
def test_a_scheduler_that_counts_otherwise(lab: Lab, run: Run, claim: str, alter: Alteration) -> None:
    ended = run(lab, alter, OF_ITS_OWN, *COUNTED)

    assert claim in deviating(ended)
    assert ended.status == 1
