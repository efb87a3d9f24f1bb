"""Capacity claims: they conform on an unaltered machine, and fall on an altered one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.cluster.workloads import pod_spec, start_pod
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import Alteration, Cluster, check_fall, shipped, unaltered
from tests.markers import falls
from tests.vm.altering import kubelet_refused
from tests.vm.conftest import Run

OF_ITS_OWN = shipped("scheduling/test_allocatable.py")
RESERVED = ("-k", "allocatable_resources")
COUNTED = ("-k", "counts")
PRESSURE = shipped("conditions/test_pressure.py")


def nobody_hears_of_static_pods(cluster: Cluster) -> None:
    with kubelet_refused(cluster, "pods", operation="CREATE"):
        cluster.over.wait()


def somebody_counts_foreign_work(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    spec = pod_spec({"nodeName": cluster.target})
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    start_pod(cluster.lab.cluster.api, cluster.target, spec)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            (OF_ITS_OWN, *RESERVED),
            marks=falls("capacity.allocatable-formula", "scheduling.reserve-for-daemons"),
            id="reserved",
        ),
        pytest.param(
            (PRESSURE,),
            marks=[
                falls("conditions.disk-pressure", "conditions.memory-pressure", "conditions.pid-pressure"),
                falls("conditions.pressure-damping"),
            ],
            id="pressure",
        ),
    ],
)
def test_capacity_claims_deviate_if_node_status_is_not_reported(
    lab: LabHandle, run: Run, tmp_path: Path, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    with kubelet_refused(Cluster(lab, tmp_path), "nodes/status"):
        ended = run(lab, unaltered, *scenario)

    assert ended.deviating() == claims
    assert ended.status == 1


@pytest.mark.parametrize(
    "alter",
    [
        pytest.param(nobody_hears_of_static_pods, marks=falls("scheduling.counts-kubelet-containers")),
        pytest.param(somebody_counts_foreign_work, marks=falls("scheduling.ignores-foreign")),
    ],
)
def test_scheduling_claims_deviate_if_the_scheduler_counts_otherwise(
    lab: LabHandle, run: Run, alter: Alteration, claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, OF_ITS_OWN, *COUNTED), claims)
