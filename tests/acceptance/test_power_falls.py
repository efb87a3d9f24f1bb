"""The scenario about nodes without power, on a cluster whose collector may remove nothing, and others do."""

from __future__ import annotations

from typing import Any

from nodeproof.cluster.resources import NAMESPACE, node
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import OUT_OF_SERVICE, POD_COLLECTOR, condition_status
from tests.acceptance.alterations import BUGS_TOO, SLACK_S, each, refused
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_nodes_fall import deviating
from tests.acceptance.test_pods_fall import APPS, on, on_the_target, remove, tolerated_s
from tests.waiting import pause

Json = Any
POWER_CUT = shipped("nongraceful/test_power_cut.py")
IN_POWER_CUT = {
    *(f"non-graceful.{name}" for name in ("statefulset-stuck", "never-returns", "node-returns")),
    *(f"out-of-service.{name}" for name in ("force-deletes", "effect-noschedule", "effect-noexecute")),
    *(f"out-of-service.{name}" for name in ("needs-terminating", "toleration", "manual-removal")),
    *("out-of-service.metric", "out-of-service.gate"),
}


def the_collector_removes_nothing(cluster: Cluster) -> None:
    """It tries again each time that it looks."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    itself = {"name": "itself", "expression": f"request.userInfo.username == '{POD_COLLECTOR}'"}
    with refused(cluster, [rule], [itself]):
        cluster.over.wait()


def pods_of_a_node_that_nobody_tells_of_go(cluster: Cluster) -> None:
    """By force, and a StatefulSet makes no new ones; the first of its pods waits for the node."""
    cluster.until_injected("power-off", often=2)
    other = cluster.injected("power-off")[0]

    def leaving(kind: str) -> list[Json]:
        return [item for item in on(other, cluster, kind) if "deletionTimestamp" in item["metadata"]]

    cluster.until(lambda: len(leaving("StatefulSet")) == 2 and leaving(""))
    # What comes within the slack may have come before.
    pause(SLACK_S)
    (owner,) = {item["metadata"]["ownerReferences"][0]["name"] for item in leaving("StatefulSet")}
    path = f"{APPS}/namespaces/{NAMESPACE}/statefulsets/{owner}"
    cluster.lab.cluster.api.patch(path, {"spec": {"replicas": 0}})
    for item in [*leaving(""), *leaving("StatefulSet")]:
        if not item["metadata"]["name"].endswith("-0"):
            remove(cluster, item, grace_s=0)


def somebody_deletes_pods_that_may_stay(cluster: Cluster) -> None:
    """One under each effect, that tolerates what was there before, or all of it."""

    def unlimited(tolerates_it: bool) -> list[Json]:
        items = [item for item in on_the_target(cluster, "") if tolerated_s(item) is None]
        keys = [{entry["key"] for entry in item["spec"]["tolerations"]} for item in items]
        return [
            item for item, told in zip(items, keys, strict=True) if (OUT_OF_SERVICE in told) is tolerates_it
        ]

    for often, tolerates_it in ((1, False), (2, True)):
        cluster.until_injected("taint", often=often)
        # What comes within the slack may have come before.
        pause(SLACK_S)
        for item in unlimited(tolerates_it):
            remove(cluster, item)


def somebody_takes_the_taint_off_for_a_moment(cluster: Cluster) -> None:
    cluster.until_injected("taint", often=2)
    cluster.until(lambda: condition_status(cluster.node(), "Ready") == "True")
    # What comes within the slack may have come before.
    pause(SLACK_S)
    api, taints = cluster.lab.cluster.api, cluster.node()["spec"]["taints"]
    others = [entry for entry in taints if entry["key"] != OUT_OF_SERVICE]
    for left in (others, taints):
        api.patch(node(cluster.target), {"spec": {"taints": left}})


@BUGS_TOO
def test_claims_about_nodes_without_power_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(
        the_collector_removes_nothing,
        pods_of_a_node_that_nobody_tells_of_go,
        somebody_deletes_pods_that_may_stay,
        somebody_takes_the_taint_off_for_a_moment,
    )
    assert deviating(run, whole_lab, alter, POWER_CUT) == IN_POWER_CUT
