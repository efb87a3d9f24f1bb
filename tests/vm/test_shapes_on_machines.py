"""Claims about machines of another shape: they conform on one as it joins, and fall on one whose kubelet does
otherwise.
"""

from __future__ import annotations

import uuid

import pytest

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import BASE, COMMAND_LIMIT_S, Fall, check_that_all_conform, check_that_fall, claims_of
from tests.vm.conftest import Run

NUMA, CGROUP_V1 = shipped("topology/test_numa.py"), shipped("swap/test_cgroup_v1.py")
OF_TWO_NUMA_NODES, OF_CGROUP_V1 = "of-two-numa-nodes", "of-cgroup-v1"
KUBELET, REAL = "/usr/local/bin/kubelet", "/usr/local/lib/real"
"""All of Kubernetes is one executable, which is by its name what it is: the real one keeps that."""
DEAF = f"""
mkdir -p {REAL}
[ -e {REAL}/kubelet ] || mv {KUBELET} {REAL}
cat >{KUBELET} <<'END'
#!/bin/sh
for flag; do
    shift
    case "$flag" in
    --topology-manager-policy=*) continue ;;
    --config=/run/*) sed -i s/LimitedSwap/NoSwap/ "${{flag#*=}}" ;;
    esac
    set -- "$@" "$flag"
done
exec {REAL}/kubelet "$@"
END
chmod +x {KUBELET}
"""
ALIGNS_UNASKED = f"""
grep -q single-numa-node {BASE} || sed -i 's/}}$/, "topologyManagerPolicy": "single-numa-node"}}/' {BASE}
systemctl restart kubelet
"""


def as_it_joins(cluster: Cluster, name: str, script: str) -> None:
    def is_done() -> bool:
        try:
            return _run(cluster.lab, name, script)
        except (MachineError, Problem, OSError):
            return False

    cluster.until(is_done)


def _run(lab: Lab, name: str, script: str) -> bool:
    # A connection of its own: what joined by this name in an earlier test had another key.
    machine = lab.fleet.machine(name, uuid.uuid4().hex)
    try:
        return machine.run(["sh", "-ec", script], deadline_s=COMMAND_LIMIT_S).status == 0
    finally:
        machine.close()


def a_kubelet_hears_of_no_policy(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, DEAF)


def a_kubelet_aligns_unasked(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, ALIGNS_UNASKED)


def a_kubelet_takes_one_behaviour_for_another(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_CGROUP_V1, DEAF)


FALLS: list[Fall] = [
    (("topology.policy-single-numa", "topology.hints-align"), a_kubelet_hears_of_no_policy, (NUMA,)),
    (("topology.default-none",), a_kubelet_aligns_unasked, (NUMA,)),
    (("swap.cgroup-v1-unsupported",), a_kubelet_takes_one_behaviour_for_another, (CGROUP_V1,)),
]
FALL = claims_of(FALLS)
"""Every claim that falls here."""


@pytest.mark.parametrize("scenario", [NUMA, CGROUP_V1], ids=["numa", "cgroup-v1"])
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(("claims", "alter", "scenario"), FALLS)
def test_a_claim_falls_on_a_machine_that_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    check_that_fall(run(lab, alter, *scenario), claims)
