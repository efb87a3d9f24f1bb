"""Claims about what a machine has room for: they conform on it as it is, and fall where it does otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.cluster.workloads import create_pod
from nodeproof.labs.client.lab import Lab
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import check_that_all_conform, deviating, kubelet_refused
from tests.vm.conftest import Run

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
    with kubelet_refused(cluster, "pods", operation="CREATE"):
        cluster.over.wait()


def somebody_counts_foreign_work(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    create_pod(cluster.lab.cluster.api, cluster.target, (), by_scheduler=False, requests={"cpu": "100m"})


@pytest.mark.parametrize("scenario", [OF_ITS_OWN, PRESSURE], ids=["of-its-own", "pressure"])
def test_what_a_machine_has_room_for_is_as_claimed(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(
    ("scenario", "claims"),
    [((OF_ITS_OWN, *RESERVED), IN_RESERVED), ((PRESSURE,), IN_PRESSURE)],
    ids=["reserved", "pressure"],
)
def test_a_kubelet_of_which_nobody_hears_what_it_has(
    lab: Lab, run: Run, tmp_path: Path, scenario: tuple[str, ...], claims: set[str]
) -> None:
    with kubelet_refused(Cluster(lab, tmp_path), "nodes/status"):
        ended = run(lab, unaltered, *scenario)

    assert deviating(ended) == claims
    assert ended.status == 1


@pytest.mark.parametrize(
    ("claims", "alter"),
    [
        ({"scheduling.counts-kubelet-containers"}, nobody_hears_of_static_pods),
        ({"scheduling.ignores-foreign"}, somebody_counts_foreign_work),
    ],
)
def test_a_scheduler_that_counts_otherwise(lab: Lab, run: Run, claims: set[str], alter: Alteration) -> None:
    ended = run(lab, alter, OF_ITS_OWN, *COUNTED)

    assert claims <= deviating(ended)
    assert ended.status == 1
