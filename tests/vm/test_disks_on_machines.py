"""Claims about disks that are plugged into machines.

They conform as it is, and fall where somebody moves a disk, keeps it, or ends its writer.
"""

from __future__ import annotations

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.faults.providers import DISKS, DRIVER, handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import Json
from tests.acceptance.altered import Alteration, Cluster, check_fall, refused, shipped
from tests.markers import falls
from tests.vm.altering import (
    COMMAND_TIMEOUT_S,
    KILL_WITNESSES,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import pause

DEAD, RUN_ON = (shipped(f"nongraceful/test_{name}.py") for name in ("disks", "running_machines"))
UNMOUNT = shipped("shutdown/test_unmount.py")
LEFT, LOSES = ("-k", "leftover_out_of_service_taint"), ("-k", "loses_its_disk")
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
UNMOUNT_ALL = "at=$(findmnt -n -r -o TARGET | grep kubernetes.io~csi) && umount -l $at"
FILE = "file=$(ls /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount/written)"
LATE_S = 15.0
"""Longer than an immediate detach, and shorter than a pod's return."""
AFTERWARDS_S = 5.0
"""Longer than the slack of machines."""


def attachments(cluster: Cluster) -> list[Json]:
    """Return the attachments of the driver's volumes."""
    objects = cluster.lab.cluster.api.get(ATTACHMENTS)["items"]
    return [attachment for attachment in objects if attachment["spec"]["attacher"] == DRIVER]


def claim_of(attachment: Json) -> str:
    return str(attachment["spec"]["source"]["persistentVolumeName"])


def until_pods_leave(cluster: Cluster) -> None:
    """Wait until the pods of controllers are being deleted."""
    api = cluster.lab.cluster.api
    cluster.until(
        lambda: any("deletionTimestamp" in pod["metadata"] for pod in api.get(pods(NAMESPACE))["items"])
    )


def somebody_wants_the_disks_back(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    pause(AFTERWARDS_S)
    for attachment in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{attachment['metadata']['name']}")


def somebody_plugs_a_disk_in_elsewhere(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    other = cluster.lab.fleet.node_names()[1]
    beside = cluster.lab.fleet.machine(ATTACHER)
    for attachment in attachments(cluster):
        argv = ["sh", DISKS, "attach", handle(claim_of(attachment)), other]
        process = beside.run(argv, timeout_s=COMMAND_TIMEOUT_S)
        assert process.status == 0, process.stderr


def nobody_may_detach(cluster: Cluster) -> None:
    rule = {
        "apiGroups": ["storage.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["volumeattachments"],
    }
    # They are removed as soon as there is a taint.
    cluster.until(lambda: attachments(cluster))
    with refused(cluster, [rule]):
        cluster.until_injected("taint")
        cluster.until(lambda: not leaving(cluster))
        pause(LATE_S)


def leaving(cluster: Cluster) -> list[Json]:
    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    return [pod for pod in items if "deletionTimestamp" in pod["metadata"]]


def disks_go_before_pods(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    for attachment in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{attachment['metadata']['name']}")


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
    """Modify the written data as soon as the other machine has it."""
    cluster.until_injected("taint")
    other = cluster.lab.fleet.machine(cluster.lab.fleet.node_names()[1])

    def is_finished() -> bool:
        return other.run(["sh", "-c", f"{FILE} && {do}"], timeout_s=COMMAND_TIMEOUT_S).status == 0

    cluster.until(is_finished)


def what_is_out_of_service_stops(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def somebody_unmounts(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    sh(cluster.lab, UNMOUNT_ALL)


FALLS = [
    pytest.param(somebody_wants_the_disks_back, (DEAD,), marks=falls("non-graceful.volumeattachment-stays")),
    pytest.param(
        somebody_plugs_a_disk_in_elsewhere, (DEAD,), marks=falls("non-graceful.volume-not-attachable")
    ),
    pytest.param(nobody_may_detach, (DEAD,), marks=falls("out-of-service.immediate-detach")),
    pytest.param(disks_go_before_pods, (DEAD,), marks=falls("out-of-service.two-phases")),
    pytest.param(no_other_machine_takes_pods, (DEAD,), marks=falls("out-of-service.recovers-elsewhere")),
    pytest.param(somebody_empties_the_disk, (DEAD,), marks=falls("out-of-service.recovers-elsewhere")),
    pytest.param(somebody_writes_half_a_line, (DEAD,), marks=falls("out-of-service.recovers-elsewhere")),
    pytest.param(nobody_may_detach, (RUN_ON, *LEFT), marks=falls("out-of-service.detach-ignores-readiness")),
    pytest.param(
        what_is_out_of_service_stops,
        (RUN_ON, *LOSES),
        marks=falls("out-of-service.power-state-not-checked", "partition.two-writers"),
    ),
    pytest.param(somebody_unmounts, (UNMOUNT,), marks=falls("graceful-shutdown.waits-for-unmount")),
]


@pytest.mark.parametrize(("alter", "scenario"), FALLS)
def test_claim_deviates_if_a_component_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)
