"""The scenario of ranges of addresses, where a controller may give out none and somebody else does."""

from __future__ import annotations

from typing import Any

from nodeproof.cluster.resources import WATCHED, node
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import BUGS_TOO, refused
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_nodes_fall import deviating

Json = Any
RANGES = shipped("cidr/test_ranges.py")
IN_RANGES = {
    *(f"cidr.{name}" for name in ("off-by-default", "assigned", "mask-size", "unique", "immutable")),
    *(f"cidr.{name}" for name in ("exhausted", "released")),
}
SAME = "10.244.0.0/24"
"""A controller manager does not start where a Node's range is none of those that it gives out."""
LATER_S = 2.5
"""What comes within the slack of a recording's beginning may have been there before."""


def ranges_are_anothers(cluster: Cluster) -> None:
    """The node controller may write no Node; those that are made by hand have all one range, at once."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    # Before that it has to take its taint off the nodes of a lab that has just started.
    cluster.until_recorded()
    controller = "request.userInfo.username == 'system:serviceaccount:kube-system:node-controller'"
    with refused(cluster, [rule], [{"name": "controller", "expression": controller}]):
        while not cluster.over.wait(LATER_S):
            for item in cluster.lab.cluster.api.get(WATCHED["nodes"])["items"]:
                name, spec = item["metadata"]["name"], item["spec"]
                if name.startswith("by-hand-") and "podCIDR" not in spec:
                    cluster.lab.cluster.api.patch(node(name), {"spec": {"podCIDR": SAME, "podCIDRs": [SAME]}})


@BUGS_TOO
def test_claims_about_ranges_fall(own_lab: Lab, run: Run) -> None:
    assert deviating(run, own_lab, ranges_are_anothers, RANGES) == IN_RANGES
