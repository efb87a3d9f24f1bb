"""Claims about swap: they conform on a machine as it is, and fall on one that does otherwise."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import each
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import (
    BASE,
    Fall,
    changed,
    check_that_all_conform,
    check_that_fall,
    claims_of,
    deviating,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run

SWAP, BORNE, PAGING = (shipped(f"swap/test_{name}.py") for name in ("swap", "borne", "paging"))
SHARE = shipped("swap/test_limited.py")
REFUSES, LIMITS, NO_POD = ("-k", "does_not_start"), ("-k", "limited_swap"), ("-k", "no_pod_may_page")
BEYOND = ("-k", "beyond_its_limit")
AT_START = {f"swap.{name}" for name in ("fail-on-default", "detected-at-start")}
IN_BORNE = tuple(
    f"swap.{name}"
    for name in ("fail-on-false-starts", "node-capacity-field", "default-behavior", "secrets-on-disk")
)
IN_PAGING = (
    *(f"swap.{name}" for name in ("limited-others-can-swap", "beyond-limit-memory")),
    *(f"swap-metrics.{name}" for name in ("node", "pod", "container", "summary")),
)
IN_SHARE = (
    *(f"swap.{name}" for name in ("formula-no-reservation", "per-node", "resize-infeasible")),
    "swap-metrics.container-limit",
)
LIMITED = tuple(
    f"swap.{name}"
    for name in (
        *("limited-burstable-only", "limited-besteffort-guaranteed-zero", "limited-formula"),
        *("opt-out", "no-request-no-swap", "critical-pods-none"),
    )
)
SWAP_FOR_ALL = """
until [ -e /run/over ]; do
    for limit in $(find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name memory.swap.max); do
        echo max >"$limit"
    done
    sleep 0.2
done & echo $!
"""
# The node pages as much as before, or the fault would not be there any more: only somebody else does it.
NOBODY_PAGES = """
own=own-pages.service
pages='dd if=/dev/urandom bs=64M count=1 | sleep infinity'
systemd-run --quiet --unit=$own --property=MemoryMax=16M sh -c "$pages"
until [ "$(cat /sys/fs/cgroup/system.slice/$own/memory.swap.current)" -gt 40000000 ]; do
    sleep 0.2
done
unit=$(systemctl list-units --plain --no-legend 'nodeproof-*-pages.service' | cut -d' ' -f1)
systemctl stop "$unit"
systemd-run --quiet --collect --unit="$unit" sleep infinity
limit=/sys/fs/cgroup/kubepods.slice/memory.swap.max
{
    until [ -e /run/over ]; do echo 0 >$limit; sleep 0.2; done
    echo max >$limit
    systemctl stop $own
} & echo $!
"""
SECRETS_MAY_SWAP = """
until [ -e /run/over ]; do
    for folder in /var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/*; do
        grep -F " $folder tmpfs" /proc/mounts | tail -n 1 | grep -q noswap && mount -t tmpfs none "$folder"
    done
    sleep 0.2
done & echo $!
"""


def from_the_restart_on(cluster: Cluster, script: str) -> None:
    cluster.until_recorded('"step":"kubelet-restarted"')
    sh(cluster.lab, f"rm -f /run/over; ({script}) >/dev/null 2>&1")
    cluster.over.wait()
    sh(cluster.lab, "touch /run/over")


def everybody_may_swap(cluster: Cluster) -> None:
    from_the_restart_on(cluster, SWAP_FOR_ALL)


def everything_may_swap(cluster: Cluster) -> None:
    from_the_restart_on(cluster, SWAP_FOR_ALL + SECRETS_MAY_SWAP)


def nobody_pages(cluster: Cluster) -> None:
    from_the_restart_on(cluster, NOBODY_PAGES)


def a_node_that_pages_reports_nothing(cluster: Cluster) -> None:
    cluster.until_recorded('"fault":"swap"')
    nobody_hears(cluster, "nodes/status")


def nobody_hears_of_its_pods(cluster: Cluster) -> None:
    cluster.until_recorded('"what":"memory.swap.max"')
    nobody_hears(cluster, "pods/status")


def nobody_hears(cluster: Cluster, of: str) -> None:
    with kubelet_refused(cluster, of):
        cluster.over.wait()


FALLS: list[Fall] = [
    (LIMITED, everybody_may_swap, (SWAP, *LIMITS)),
    (("swap.noswap",), everybody_may_swap, (PAGING, *NO_POD)),
    (IN_PAGING, nobody_pages, (PAGING, *BEYOND)),
    (IN_SHARE, each(everybody_may_swap, nobody_hears_of_its_pods), (SHARE,)),
    (IN_BORNE, each(a_node_that_pages_reports_nothing, everything_may_swap), (BORNE,)),
]
FALL = claims_of(FALLS) | AT_START
"""Every claim that falls here."""


@pytest.mark.parametrize("scenario", [SWAP, BORNE, PAGING, SHARE], ids=["swap", "borne", "paging", "share"])
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(("claims", "alter", "scenario"), FALLS)
def test_a_claim_falls_on_a_machine_that_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    check_that_fall(run(lab, alter, *scenario), claims)


@pytest.mark.falls(*sorted(AT_START))
def test_a_kubelet_that_bears_swap_by_itself(lab: Lab, run: Run, claims: set[str]) -> None:
    with changed(lab, BASE, 's/}$/, "failSwapOn": false}/'):
        ended = run(lab, unaltered, SWAP, *REFUSES)

    assert deviating(ended) == claims
