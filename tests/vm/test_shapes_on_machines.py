"""Claims about machines of another shape.

They conform on one as it joins, and fall on one whose kubelet behaves differently.
"""

from __future__ import annotations

import uuid

import pytest

from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.problem import Problem
from tests.acceptance.altered import Alteration, Cluster, check_fall, shipped
from tests.markers import falls
from tests.vm.altering import (
    BASE,
    COMMAND_TIMEOUT_S,
)
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
    def is_finished() -> bool:
        try:
            return _run(cluster.lab, name, script)
        except (MachineError, Problem, OSError):
            return False

    cluster.until(is_finished)


def _run(lab: LabHandle, name: str, script: str) -> bool:
    # A new connection: an earlier machine of this name had another key.
    machine = lab.fleet.machine(name, uuid.uuid4().hex)
    try:
        return machine.run(["sh", "-ec", script], timeout_s=COMMAND_TIMEOUT_S).status == 0
    finally:
        machine.close()


def a_kubelet_hears_of_no_policy(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, DEAF)


def a_kubelet_aligns_unasked(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, ALIGNS_UNASKED)


def a_kubelet_takes_one_behaviour_for_another(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_CGROUP_V1, DEAF)


FALLS = [
    pytest.param(
        a_kubelet_hears_of_no_policy,
        (NUMA,),
        marks=falls("topology.hints-align", "topology.policy-single-numa"),
    ),
    pytest.param(a_kubelet_aligns_unasked, (NUMA,), marks=falls("topology.default-none")),
    pytest.param(
        a_kubelet_takes_one_behaviour_for_another, (CGROUP_V1,), marks=falls("swap.cgroup-v1-unsupported")
    ),
]


@pytest.mark.parametrize(("alter", "scenario"), FALLS)
def test_claim_deviates_on_a_machine_that_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)
