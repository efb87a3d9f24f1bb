"""Scenarios about pods whose time runs while their node, or its Node, is away, where somebody meddles."""

from __future__ import annotations

from nodeproof.cluster.resources import node
from nodeproof.labs.client.lab import Lab
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_nodes_fall import deviating

SWAPPED = shipped("eviction/test_taint_swap.py")
IN_SWAPPED = {"eviction.timer-survives-taint-swap"}
IN_CLOCKS = IN_SWAPPED


def a_swap_of_taints_leaves_none_for_a_moment(cluster: Cluster) -> None:
    """The node controller writes the second again at one of its next passes."""
    cluster.until_unreachable()
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"taints": None}})


def test_that_a_swap_of_taints_starts_no_clock_anew_falls(lab: Lab, run: Run) -> None:
    assert deviating(run, lab, a_swap_of_taints_leaves_none_for_a_moment, SWAPPED) == IN_SWAPPED
