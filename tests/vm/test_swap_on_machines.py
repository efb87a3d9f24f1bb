"""Swap claims: they conform on an unaltered machine, and fall on an altered one."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import Alteration, Cluster, check_fall, combined, shipped, unaltered
from tests.markers import falls
from tests.vm.altering import (
    BASE,
    changed,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run

SWAP, NO_SWAP, PAGING = (shipped(f"swap/test_{name}.py") for name in ("swap", "no_swap", "paging"))
SHARE = shipped("swap/test_limited.py")
REFUSES, LIMITS, NO_POD = ("-k", "does_not_start"), ("-k", "limited_swap"), ("-k", "keeps_pods_off_swap")
BEYOND = ("-k", "beyond_memory_limit")
SWAP_FOR_ALL = """
until [ -e /run/over ]; do
    for limit in $(find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name memory.swap.max); do
        echo max >"$limit"
    done
    sleep 0.2
done & echo $!
"""
# The node pages as much as before, so that the fault stays active: only another process does it.
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


FALLS = [
    pytest.param(
        everybody_may_swap,
        (SWAP, *LIMITS),
        marks=[
            falls(
                "swap.critical-pods-none",
                "swap.limited-besteffort-guaranteed-zero",
                "swap.limited-burstable-only",
            ),
            falls("swap.limited-formula", "swap.no-request-no-swap", "swap.opt-out"),
        ],
    ),
    pytest.param(everybody_may_swap, (PAGING, *NO_POD), marks=falls("swap.noswap")),
    pytest.param(
        nobody_pages,
        (PAGING, *BEYOND),
        marks=[
            falls("swap.beyond-limit-memory", "swap.limited-others-can-swap"),
            falls("swap-metrics.container", "swap-metrics.node", "swap-metrics.pod", "swap-metrics.summary"),
        ],
    ),
    pytest.param(
        combined(everybody_may_swap, nobody_hears_of_its_pods),
        (SHARE,),
        marks=[
            falls("swap.formula-no-reservation", "swap.per-node", "swap.resize-infeasible"),
            falls("swap-metrics.container-limit"),
        ],
    ),
    pytest.param(
        combined(a_node_that_pages_reports_nothing, everything_may_swap),
        (NO_SWAP,),
        marks=[
            falls("swap.default-behavior", "swap.fail-on-false-starts", "swap.node-capacity-field"),
            falls("swap.secrets-on-disk"),
        ],
    ),
]


@pytest.mark.parametrize(("alter", "scenario"), FALLS)
def test_claim_deviates_on_a_machine_that_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)


@falls("swap.detected-at-start", "swap.fail-on-default")
def test_swap_claims_deviate_if_the_kubelet_tolerates_swap(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    with changed(lab, BASE, 's/}$/, "failSwapOn": false}/'):
        ended = run(lab, unaltered, SWAP, *REFUSES)

    assert ended.deviating() == claims
