"""Scenarios about pods whose time runs while their node, or its Node, is away, where somebody meddles."""

from __future__ import annotations

from nodeproof.cluster.resources import node
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import BUGS_TOO, SLACK_S, pods_are_removed_by_force
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_nodes_fall import deviating
from tests.acceptance.test_pods_fall import on, on_the_target, remove
from tests.waiting import pause

SWAPPED, STATIC = shipped("eviction/test_taint_swap.py"), shipped("eviction/test_static_pods.py")
IN_SWAPPED, IN_STATIC = {"eviction.timer-survives-taint-swap"}, {"eviction.static-pods-stay"}
AGAIN, IN_AGAIN = shipped("registration/test_again.py"), {"registration.reregistration-drains"}
STUCK, IN_STUCK = shipped("partition/test_stuck.py"), {"partition.no-force-delete"}
IN_CLOCKS = IN_SWAPPED | IN_STATIC | IN_AGAIN | IN_STUCK


def a_swap_of_taints_leaves_none_for_a_moment(cluster: Cluster) -> None:
    """The node controller writes the second again at one of its next passes."""
    cluster.until_unreachable()
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"taints": None}})


def somebody_deletes_a_mirror_pod(cluster: Cluster) -> None:
    cluster.until_unreachable()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    for item in on_the_target(cluster, "Node"):
        remove(cluster, item)


def a_node_that_is_back_is_drained(cluster: Cluster) -> None:
    name = cluster.until_injected("unit-down")
    cluster.until_recorded('"step":"healed"')
    cluster.until(lambda: cluster.lab.cluster.api.get(node(name)))
    # What comes within the slack may have come before.
    pause(SLACK_S)
    for item in on(name, cluster, ""):
        remove(cluster, item)


@BUGS_TOO
def test_that_a_swap_of_taints_starts_no_clock_anew_falls(lab: Lab, run: Run) -> None:
    assert deviating(run, lab, a_swap_of_taints_leaves_none_for_a_moment, SWAPPED) == IN_SWAPPED


@BUGS_TOO
def test_that_a_static_pod_stays_falls(lab: Lab, run: Run) -> None:
    assert deviating(run, lab, somebody_deletes_a_mirror_pod, STATIC) == IN_STATIC


@BUGS_TOO
def test_that_a_node_keeps_its_pods_when_it_is_registered_again_falls(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, a_node_that_is_back_is_drained, AGAIN) == IN_AGAIN


@BUGS_TOO
def test_that_nobody_removes_a_pod_of_an_unreachable_node_falls(lab: Lab, run: Run) -> None:
    assert deviating(run, lab, pods_are_removed_by_force, STUCK) == IN_STUCK
