"""Claims about a kubelet's report of its machine, and about kubelets that stop or lose their Node or time.

They conform on a machine as it is, and fall on one that behaves differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pod, pods
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.pattern import Json
from tests.acceptance.altered import SLACK_S, Alteration, Cluster, check_fall, shipped, unaltered
from tests.markers import falls
from tests.vm.altering import (
    COMMAND_TIMEOUT_S,
    KILL_WITNESSES,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import eventually, pause, throughout

STOPPED = shipped("heartbeat/test_stopped_kubelet.py")
MACHINE, NETWORK = shipped("info/test_machine.py"), shipped("conditions/test_network.py")
RUNTIME, WITHOUT = shipped("conditions/test_runtime.py"), ("-k", "without_container_runtime")
DELETED, OLD_CLOCK = shipped("deletion_gc/test_live_kubelet.py"), shipped("heartbeat/test_clock.py")
PLUGINS, BEFORE_THEM = (f"/etc/cni/net.d/{name}.conflist" for name in ("10-nodeproof", "05-other"))
OTHER, NO_ADDRESS = "nodeproof-was-here", "198.51.100.1"
ROOM = {"cpu": "7", "memory": "6Gi", "pods": "17"}
UPDATES_S = 6.0
"""Longer than a kubelet needs in `fast` to correct a foreign write, if it may."""
SOCKET, NOBODYS = "/run/containerd/containerd.sock", "/run/nobodys.sock"


def nobody_hears_of_the_runtime(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    with kubelet_refused(cluster, "nodes/status"):
        cluster.over.wait()


def nobody_leaves_a_node_alone_that_has_no_kubelet(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    sh(cluster.lab, KILL_WITNESSES)
    cluster.until_unreachable()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    api = cluster.lab.cluster.api
    for bound_pod in api.get(pods(NAMESPACE))["items"]:
        if any(owner["kind"] == "Node" for owner in bound_pod["metadata"].get("ownerReferences", ())):
            api.delete(pod(NAMESPACE, bound_pod["metadata"]["name"]))


def somebody_listens(cluster: Cluster) -> None:
    sh(cluster.lab, f"ln -sf {SOCKET} {NOBODYS}")
    cluster.over.wait()
    sh(cluster.lab, f"rm {NOBODYS}")


def a_kubelet_ends_with_its_node(cluster: Cluster) -> None:
    """Healing the deleted Node starts it again."""
    cluster.until_injected("node-deleted")
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_says_unknown_of_a_node(cluster: Cluster) -> None:
    """As if only its Lease counted."""
    cluster.until_injected("kubelet-settings")
    cluster.until_ready()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    conditions = cluster.node()["status"]["conditions"]
    altered = [{**entry, "status": "Unknown"} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": altered}})


def status_of_another_machine(status: Json) -> Json:
    """Return a status that differs in all that a kubelet gathers, except what identifies the node.

    That is its first address, and the machine id, without which nobody may harm it.
    """
    gathered = dict.fromkeys(status["nodeInfo"], OTHER) | {"machineID": status["nodeInfo"]["machineID"]}
    inside = [address for address in status["addresses"] if address["type"] == "InternalIP"]
    others = {"InternalIP": NO_ADDRESS, "ExternalIP": NO_ADDRESS, "Hostname": OTHER}
    return {
        "nodeInfo": gathered,
        "addresses": inside + [{"type": type_, "address": others[type_]} for type_ in others],
        "conditions": [{**condition, "message": OTHER} for condition in status["conditions"]],
        "capacity": ROOM,
        "allocatable": ROOM,
    }


@contextmanager
def another_machine_reported(cluster: Cluster) -> Iterator[None]:
    """Report another machine in a Node whose kubelet may not correct it."""
    path = f"{node(cluster.target)}/status"

    def is_reported() -> bool:
        return bool(cluster.node()["status"]["nodeInfo"]["bootID"] == OTHER)

    def stays_reported() -> bool:
        if not is_reported():
            cluster.lab.cluster.api.patch(
                path, {"status": status_of_another_machine(cluster.node()["status"])}
            )
        return throughout(is_reported, UPDATES_S)

    with kubelet_refused(cluster, "nodes/status"):
        assert eventually(stays_reported, COMMAND_TIMEOUT_S)
        yield
    assert eventually(lambda: not is_reported(), COMMAND_TIMEOUT_S)


FALLS = [
    pytest.param(
        nobody_hears_of_the_runtime,
        (RUNTIME, "-k", "with_stopped_runtime"),
        marks=falls("conditions.ready-false", "runtime-restart.node-not-ready"),
    ),
    pytest.param(
        nobody_leaves_a_node_alone_that_has_no_kubelet,
        (STOPPED,),
        marks=falls("eviction.all-pods", "eviction.static-pods-stay", "heartbeat.kubelet-stop"),
    ),
    pytest.param(a_kubelet_ends_with_its_node, (DELETED,), marks=falls("deletion-gc.live-kubelet-kills")),
    pytest.param(somebody_says_unknown_of_a_node, (OLD_CLOCK,), marks=falls("heartbeat.local-clock")),
    pytest.param(somebody_listens, (RUNTIME, *WITHOUT), marks=falls("components.on-node")),
]


@pytest.mark.parametrize(("alter", "scenario"), FALLS)
def test_claim_deviates_on_a_machine_that_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)


@falls("addresses.external-ip-absent", "addresses.hostname", "addresses.internal-ip")
@falls("addresses.internal-ip-only-inside", "capacity.fields", "capacity.updates-live")
@falls("conditions.ready-true-shape")
@falls("info.kernel-os-runtime", "info.kube-proxy-version", "info.kubelet-version", "info.machine-ids")
def test_machine_claims_deviate_if_another_machine_is_reported(
    lab: LabHandle, run: Run, tmp_path: Path, claims: frozenset[str]
) -> None:
    with another_machine_reported(Cluster(lab, tmp_path)):
        ended = run(lab, unaltered, MACHINE)

    assert ended.deviating() == claims
    assert ended.status == 1


@falls("conditions.accepting-pods", "conditions.ready-false-cni", "registration.first-ready-fast")
def test_pod_network_claims_deviate_on_another_network(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    sh(lab, f"cp {PLUGINS} {BEFORE_THEM}")
    try:
        ended = run(lab, unaltered, NETWORK)
    finally:
        sh(lab, f"rm {BEFORE_THEM}")

    assert ended.deviating() == claims
    assert ended.status == 1
