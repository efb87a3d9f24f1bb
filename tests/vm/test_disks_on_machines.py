"""Claims about disks that are plugged into machines: they conform as it is, and fall where somebody moves a
disk, keeps it, or ends who writes to it.
"""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.faults.volumes import DISKS, DRIVER, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.model.needs import ATTACHER
from tests.acceptance.alterations import refused
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import (
    COMMAND_LIMIT_S,
    KILL_WITNESSES,
    Fall,
    check_that_all_conform,
    check_that_fall,
    claims_of,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import pause

Json = Any
DEAD, RUN_ON = (shipped(f"nongraceful/test_{name}.py") for name in ("disks", "machines_that_run"))
UNMOUNT = shipped("shutdown/test_unmount.py")
LEFT, LOSES = ("-k", "taint_was_left"), ("-k", "loses_its_disk")
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
UNMOUNT_ALL = "at=$(findmnt -n -r -o TARGET | grep kubernetes.io~csi) && umount -l $at"
FILE = "file=$(ls /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount/written)"
LATE_S = 15.0
"""Longer than a detach that comes at once, and shorter than a pod's return."""
AFTERWARDS_S = 5.0
"""Longer than the slack of machines."""


def attachments(cluster: Cluster) -> list[Json]:
    """Those of the driver's volumes."""
    found = cluster.lab.cluster.api.get(ATTACHMENTS)["items"]
    return [each for each in found if each["spec"]["attacher"] == DRIVER]


def claim_of(attachment: Json) -> str:
    return str(attachment["spec"]["source"]["persistentVolumeName"])


def until_pods_leave(cluster: Cluster) -> None:
    """Until those that controllers made are to be deleted."""
    api = cluster.lab.cluster.api
    cluster.until(
        lambda: any("deletionTimestamp" in each["metadata"] for each in api.get(pods(NAMESPACE))["items"])
    )


def somebody_wants_the_disks_back(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    pause(AFTERWARDS_S)
    for each in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{each['metadata']['name']}")


def somebody_plugs_a_disk_in_elsewhere(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    other = cluster.lab.fleet.node_names()[1]
    beside = cluster.lab.fleet.machine(ATTACHER)
    for each in attachments(cluster):
        argv = ["sh", DISKS, "attach", handle(claim_of(each)), other]
        done = beside.run(argv, deadline_s=COMMAND_LIMIT_S)
        assert done.status == 0, done.stderr


def nobody_may_detach(cluster: Cluster) -> None:
    rule = {
        "apiGroups": ["storage.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["volumeattachments"],
    }
    # They go as soon as there is a taint.
    cluster.until(lambda: attachments(cluster))
    with refused(cluster, [rule]):
        cluster.until_injected("taint")
        cluster.until(lambda: not leaving(cluster))
        pause(LATE_S)


def leaving(cluster: Cluster) -> list[Json]:
    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    return [each for each in items if "deletionTimestamp" in each["metadata"]]


def disks_go_before_pods(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    for each in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{each['metadata']['name']}")


def no_other_machine_takes_pods(cluster: Cluster) -> None:
    other = node(cluster.lab.fleet.node_names()[1])
    until_pods_leave(cluster)
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": True}})
    cluster.over.wait()
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": None}})


def somebody_empties_the_disk(cluster: Cluster) -> None:
    on_the_disk(cluster, ": >$file")


def somebody_writes_half_a_line(cluster: Cluster) -> None:
    on_the_disk(cluster, "printf '9 nod' >>$file")


def on_the_disk(cluster: Cluster, do: str) -> None:
    """Do something to what is written, as soon as the other machine has it."""
    cluster.until_injected("taint")
    other = cluster.lab.fleet.machine(cluster.lab.fleet.node_names()[1])

    def done() -> bool:
        return other.run(["sh", "-c", f"{FILE} && {do}"], deadline_s=COMMAND_LIMIT_S).status == 0

    cluster.until(done)


def what_is_out_of_service_stops(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def somebody_unmounts(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    sh(cluster.lab, UNMOUNT_ALL)


FALLS: list[Fall] = [
    (("non-graceful.volumeattachment-stays",), somebody_wants_the_disks_back, (DEAD,)),
    (("non-graceful.volume-not-attachable",), somebody_plugs_a_disk_in_elsewhere, (DEAD,)),
    (("out-of-service.immediate-detach",), nobody_may_detach, (DEAD,)),
    (("out-of-service.two-phases",), disks_go_before_pods, (DEAD,)),
    (("out-of-service.recovers-elsewhere",), no_other_machine_takes_pods, (DEAD,)),
    (("out-of-service.recovers-elsewhere",), somebody_empties_the_disk, (DEAD,)),
    (("out-of-service.recovers-elsewhere",), somebody_writes_half_a_line, (DEAD,)),
    (("out-of-service.detach-ignores-readiness",), nobody_may_detach, (RUN_ON, *LEFT)),
    (
        ("out-of-service.power-state-not-checked", "partition.two-writers"),
        what_is_out_of_service_stops,
        (RUN_ON, *LOSES),
    ),
    (("graceful-shutdown.waits-for-unmount",), somebody_unmounts, (UNMOUNT,)),
]
FALL = claims_of(FALLS)


@pytest.mark.parametrize("scenario", [DEAD, RUN_ON, UNMOUNT], ids=["dead", "run-on", "unmount"])
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(("claims", "alter", "scenario"), FALLS)
def test_a_claim_falls_where_somebody_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    check_that_fall(run(lab, alter, *scenario), claims)
