"""Claims about what a kubelet tells of its machine, and about kubelets that stop, or lose their Node or their
time: they conform on a machine as it is, and fall on one that does otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pod, pods
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import condition_status
from tests.acceptance.alterations import SLACK_S
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import (
    COMMAND_LIMIT_S,
    KILL_WITNESSES,
    Fall,
    check_that_all_conform,
    check_that_fall,
    claims_of,
    deviating,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import eventually, pause, throughout

Json = Any
STOPPED = shipped("heartbeat/test_stopped_kubelet.py")
MACHINE, NETWORK = shipped("info/test_machine.py"), shipped("conditions/test_network.py")
RUNTIME, WITHOUT = shipped("conditions/test_runtime.py"), ("-k", "without_a_container_runtime")
DELETED, OLD_CLOCK = shipped("deletion_gc/test_live_kubelet.py"), shipped("heartbeat/test_clock.py")
IN_MACHINE = {
    *(f"info.{name}" for name in ("kernel-os-runtime", "kubelet-version")),
    *(f"info.{name}" for name in ("kube-proxy-version", "machine-ids")),
    *(f"addresses.{name}" for name in ("hostname", "internal-ip", "external-ip-absent")),
    *("addresses.internal-ip-only-inside", "capacity.fields", "capacity.updates-live"),
    "conditions.ready-true-shape",
}
IN_NETWORK = {"conditions.ready-false-cni", "conditions.accepting-pods", "registration.first-ready-fast"}
PLUGINS, BEFORE_THEM = (f"/etc/cni/net.d/{name}.conflist" for name in ("10-nodeproof", "05-other"))
OTHER, NO_ADDRESS = "nodeproof-was-here", "198.51.100.1"
ROOM = {"cpu": "7", "memory": "6Gi", "pods": "17"}
UPDATES_S = 6.0
"""Longer than a kubelet takes in `fast` to put right what somebody else wrote, if it may."""
SOCKET, NOBODYS = "/run/containerd/containerd.sock", "/run/nobodys.sock"


def nobody_hears_of_the_runtime(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    with kubelet_refused(cluster, "nodes/status"):
        cluster.over.wait()


def nobody_leaves_a_node_alone_that_has_no_kubelet(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    sh(cluster.lab, KILL_WITNESSES)
    cluster.until_unreachable()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    api = cluster.lab.cluster.api
    for each in api.get(pods(NAMESPACE))["items"]:
        if any(owner["kind"] == "Node" for owner in each["metadata"].get("ownerReferences", ())):
            api.delete(pod(NAMESPACE, each["metadata"]["name"]))


def somebody_listens(cluster: Cluster) -> None:
    sh(cluster.lab, f"ln -sf {SOCKET} {NOBODYS}")
    cluster.over.wait()
    sh(cluster.lab, f"rm {NOBODYS}")


def a_kubelet_ends_with_its_node(cluster: Cluster) -> None:
    """What gives the Node back starts it again."""
    cluster.until_injected("node-deleted")
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_says_unknown_of_a_node_that_is_back(cluster: Cluster) -> None:
    """As who goes by what its Lease says."""
    cluster.until_injected("clock")
    cluster.until(lambda: condition_status(cluster.node(), "Ready") == "Unknown")
    cluster.until_ready()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    conditions = cluster.node()["status"]["conditions"]
    said = [{**entry, "status": "Unknown"} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": said}})


def told_of_another(status: Json) -> Json:
    """A status that differs in all that a kubelet gathers, but for what the node is known by: its first
    address, and the machine id, without which nobody may harm it.
    """
    gathered = dict.fromkeys(status["nodeInfo"], OTHER) | {"machineID": status["nodeInfo"]["machineID"]}
    inside = [each for each in status["addresses"] if each["type"] == "InternalIP"]
    others = {"InternalIP": NO_ADDRESS, "ExternalIP": NO_ADDRESS, "Hostname": OTHER}
    return {
        "nodeInfo": gathered,
        "addresses": inside + [{"type": type_, "address": others[type_]} for type_ in others],
        "conditions": [{**each, "message": OTHER} for each in status["conditions"]],
        "capacity": ROOM,
        "allocatable": ROOM,
    }


@contextmanager
def another_told(cluster: Cluster) -> Iterator[None]:
    """A Node that tells of another machine, and whose kubelet may not put it right."""
    path = f"{node(cluster.target)}/status"

    def is_told() -> bool:
        return bool(cluster.node()["status"]["nodeInfo"]["bootID"] == OTHER)

    def stays_told() -> bool:
        if not is_told():
            cluster.lab.cluster.api.patch(path, {"status": told_of_another(cluster.node()["status"])})
        return throughout(is_told, UPDATES_S)

    with kubelet_refused(cluster, "nodes/status"):
        assert eventually(stays_told, COMMAND_LIMIT_S)
        yield
    assert eventually(lambda: not is_told(), COMMAND_LIMIT_S)


FALLS: list[Fall] = [
    (("conditions.ready-false",), nobody_hears_of_the_runtime, (RUNTIME, "-k", "goes_on_reporting")),
    (
        ("heartbeat.kubelet-stop", "eviction.static-pods-stay", "eviction.all-pods"),
        nobody_leaves_a_node_alone_that_has_no_kubelet,
        (STOPPED,),
    ),
    (("deletion-gc.live-kubelet-kills",), a_kubelet_ends_with_its_node, (DELETED,)),
    (("heartbeat.local-clock",), somebody_says_unknown_of_a_node_that_is_back, (OLD_CLOCK,)),
    (("components.on-node",), somebody_listens, (RUNTIME, *WITHOUT)),
]
FALL = claims_of(FALLS) - {"eviction.static-pods-stay"} | IN_MACHINE | IN_NETWORK
"""Every claim that falls here, but for one that falls in the process lab as well."""


@pytest.mark.parametrize(
    "scenario", [MACHINE, NETWORK, RUNTIME, STOPPED], ids=["machine", "network", "runtime", "stopped"]
)
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(("claims", "alter", "scenario"), FALLS)
def test_a_claim_falls_on_a_machine_that_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    check_that_fall(run(lab, alter, *scenario), claims)


@pytest.mark.falls(*sorted(IN_MACHINE))
def test_a_node_that_tells_of_another_machine(lab: Lab, run: Run, tmp_path: Path, claims: set[str]) -> None:
    with another_told(Cluster(lab, tmp_path)):
        ended = run(lab, unaltered, MACHINE)

    assert deviating(ended) == claims
    assert ended.status == 1


@pytest.mark.falls(*sorted(IN_NETWORK))
def test_a_runtime_that_has_another_network(lab: Lab, run: Run, claims: set[str]) -> None:
    sh(lab, f"cp {PLUGINS} {BEFORE_THEM}")
    try:
        ended = run(lab, unaltered, NETWORK)
    finally:
        sh(lab, f"rm {BEFORE_THEM}")

    assert deviating(ended) == claims
    assert ended.status == 1
