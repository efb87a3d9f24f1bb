"""Claims that need real machines: they conform on a machine as it is, and fall on one that does otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeproof.cluster.configuration import kubelet_configz
from nodeproof.cluster.resources import node
from nodeproof.labs.client.lab import Lab
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.conftest import Run
from tests.waiting import eventually

COMMAND_LIMIT_S = 60.0
CONTAINERS = shipped("partition/test_containers.py")
GRACEFUL, UNNOTICED = shipped("shutdown/test_graceful.py"), shipped("shutdown/test_unnoticed.py")
SWAP = shipped("swap/test_swap.py")
REFUSES, LIMITS = ("-k", "does_not_start"), ("-k", "limited_swap")
LIMITED = tuple(
    f"swap.{name}"
    for name in (
        *("limited-burstable-only", "limited-besteffort-guaranteed-zero", "limited-formula"),
        *("opt-out", "no-request-no-swap", "critical-pods-none"),
    )
)
SHUTDOWN_CLAIMS = (
    "detects",
    "inhibitor-lock",
    "ready-false",
    "pods-marked",
    "normal-termination",
    "two-phases",
)
BASE, ENVIRONMENT = "/etc/kubernetes/kubelet.json", "/etc/default/kubelet"
NO_BUS = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
KILL_WITNESSES = "for p in $(pgrep -f nodeproof/witness); do [ $p = $$ ] || kill -KILL $p; done"
SWAP_FOR_ALL = """
until [ -e /run/over ]; do
    for limit in $(find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name memory.swap.max); do
        echo max >"$limit"
    done
    sleep 0.2
done & echo $!
"""


def sh(lab: Lab, script: str) -> str:
    """Run a script on the node that scenarios harm."""
    machine = lab.fleet.machine(lab.fleet.node_names()[0])
    # The scenarios run in a process of their own: the node may have booted since we spoke to it.
    machine.close()
    done = machine.run(["sh", "-c", script], deadline_s=COMMAND_LIMIT_S)
    assert done.status == 0, done.stderr
    return done.stdout


def containers_end_and_nobody_clears_up(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def somebody_says_not_ready(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"powered-off"')
    conditions = cluster.node()["status"]["conditions"]
    said = [{**entry, "status": "False"} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": said}})


def everybody_may_swap(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"kubelet-restarted"')
    sh(cluster.lab, f"rm -f /run/over; ({SWAP_FOR_ALL}) >/dev/null 2>&1")
    cluster.over.wait()
    sh(cluster.lab, "touch /run/over")


@contextmanager
def changed(lab: Lab, file: str, edit: str) -> Iterator[None]:
    """A kubelet of the node that scenarios harm whose files somebody has changed with sed."""
    restart = "systemctl restart kubelet"
    sh(lab, f"cp -p {file} {file}.kept && sed -i '{edit}' {file} && {restart}")
    try:
        assert eventually(
            lambda: kubelet_configz(lab.cluster.api, lab.fleet.node_names()[0]), COMMAND_LIMIT_S
        )
        yield
    finally:
        sh(lab, f"mv {file}.kept {file} && {restart}")
        lab.wait_nodes_ready()


@pytest.mark.parametrize(
    "scenario",
    [(CONTAINERS,), (GRACEFUL,), (UNNOTICED,), (SWAP,)],
    ids=["containers", "graceful", "unnoticed", "swap"],
)
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: tuple[str, ...]) -> None:
    ended = run(lab, unaltered, *scenario)

    assert {claim: set(ended.labels(claim)) for claim in ended.claims()} == {
        claim: {"conforms"} for claim in ended.claims()
    }
    assert ended.status == 0


@pytest.mark.parametrize(
    ("claims", "alter", "scenario"),
    [
        (
            ("partition.containers-keep-running", "partition.deferred-delete"),
            containers_end_and_nobody_clears_up,
            (CONTAINERS,),
        ),
        (("non-graceful.not-detected",), somebody_says_not_ready, (UNNOTICED,)),
        (LIMITED, everybody_may_swap, (SWAP, *LIMITS)),
    ],
)
def test_a_claim_falls_on_a_machine_that_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    ended = run(lab, alter, *scenario)

    assert ["deviates" in ended.labels(claim) for claim in claims] == [True] * len(claims)
    assert ended.status == 1


def test_a_kubelet_that_hears_nothing_of_shutdowns(lab: Lab, run: Run) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, GRACEFUL)

    labels = {claim: ended.labels(f"graceful-shutdown.{claim}") for claim in SHUTDOWN_CLAIMS}
    assert all("deviates" in label for label in labels.values()), labels
    assert ended.status == 1


def test_a_kubelet_that_was_told_to_bear_swap(lab: Lab, run: Run) -> None:
    with changed(lab, BASE, 's/}$/, "failSwapOn": false}/'):
        ended = run(lab, unaltered, SWAP, *REFUSES)

    assert "deviates" in ended.labels("swap.fail-on-default")
    assert ended.status == 1


def made_to_fall() -> set[str]:
    """Every claim that falls here."""
    marks = test_a_claim_falls_on_a_machine_that_does_otherwise.pytestmark  # type: ignore[attr-defined]
    fall = {
        claim for mark in marks if mark.name == "parametrize" for case in mark.args[1] for claim in case[0]
    }
    return fall | {f"graceful-shutdown.{claim}" for claim in SHUTDOWN_CLAIMS} | {"swap.fail-on-default"}
