"""Scenarios of rates and zones on a cluster in which somebody evicts more nodes than its controller does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import WATCHED, node
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from tests.acceptance.alterations import BUGS_TOO, each
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run, started
from tests.acceptance.test_nodes_fall import deviating

Json = Any
STRANGER = "stranger"
pytestmark = [pytest.mark.alone, BUGS_TOO]
IN_RATES = {
    "rate-limits.limits-taints-not-pods",
    "rate-limits.flag",
    "rate-limits.partial-threshold",
    "rate-limits.small-stops",
    "rate-limits.threshold-is-per-zone",
    "zones.per-zone-policy",
}
IN_LARGE_ZONE = {
    "rate-limits.boundary-fifty",
    "rate-limits.limiter-only-on-state-change",
    "rate-limits.large-secondary",
}
IN_LOST_CLUSTER = {
    "zones.all-down-no-evictions",
    "zones.all-down-untaints",
    "zones.exclude-disruption-label",
    "zones.recovery-resumes",
    "zones.exit-resets-probe-time",
    "zones.single-zone-cluster",
}
IN_LOST_ZONE = {"zones.full-zone-normal-rate", "rate-limits.threshold-flags"}
EACH_S = 3.0
"""Often enough for each stretch that is judged, and rarely enough for nodes to be left."""
AT_ONCE_S = 0.4


def somebody_else_evicts(cluster: Cluster) -> None:
    """Taint one lost node more each few seconds, as the controller would: of the zone that has lost most."""

    api = cluster.lab.cluster.api

    def waiting() -> list[Json]:
        return [item for item in most_lost(cluster) if not has_taint(item, UNREACHABLE, "NoExecute")]

    cluster.until_recorded('"step":"injected"')
    while not cluster.over.wait(EACH_S):
        for item in waiting()[-1:]:
            taints = [*item["spec"].get("taints", ()), {"key": UNREACHABLE, "effect": "NoExecute"}]
            api.patch(node(item["metadata"]["name"]), {"spec": {"taints": taints}})


def evictions_go_on_when_all_is_lost(cluster: Cluster) -> None:
    """From the loss of the third node of three on, evict a lost node again and again."""
    cluster.until_injected("ready-patched", often=2)
    evict_again_and_again(cluster)


def evictions_resume_at_once(cluster: Cluster) -> None:
    """From the first node's return on, evict a lost node again and again, so that one comes too soon."""
    cluster.until_recorded('"step":"healing"')
    evict_again_and_again(cluster)


def evict_again_and_again(cluster: Cluster) -> None:
    """Take the taint off one of the lost nodes and put it back, so that it is written."""
    api = cluster.lab.cluster.api
    while not cluster.over.wait(AT_ONCE_S):
        for item in most_lost(cluster)[:1]:
            others = [taint for taint in item["spec"].get("taints", ()) if taint["effect"] != "NoExecute"]
            for taints in (others, [*others, {"key": UNREACHABLE, "effect": "NoExecute"}]):
                api.patch(node(item["metadata"]["name"]), {"spec": {"taints": taints}})


def a_stranger_is_well(cluster: Cluster) -> None:
    """A Node of no machine whose status somebody reports, so that the cluster is never lost whole."""
    api = cluster.lab.cluster.api
    cluster.until_injected("outage")
    api.create(WATCHED["nodes"], {"metadata": {"name": STRANGER}})
    try:
        while not cluster.over.wait(EACH_S):
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            ready = {"type": "Ready", "status": "True", "reason": "Altered", "lastHeartbeatTime": now}
            api.patch(f"{node(STRANGER)}/status", {"status": {"conditions": [ready]}})
    finally:
        api.delete(node(STRANGER))


def most_lost(cluster: Cluster) -> list[Json]:
    """The lost nodes of the zone that has lost most."""
    lost = [item for item in cluster.lab.cluster.api.get(WATCHED["nodes"])["items"] if is_lost(item)]
    zones = Counter(zone_of(item) for item in lost)
    return [item for item in lost if zone_of(item) == zones.most_common(1)[0][0]]


def is_lost(item: Json) -> bool:
    return condition_status(item, "Ready") == "Unknown"


def zone_of(item: Json) -> str:
    return str(item["metadata"]["labels"].get(ZONE_LABEL, ""))


@pytest.fixture(scope="module")
def large_lab(components: Components) -> Iterator[Lab]:
    """A zone of fifty nodes beside one of two."""
    with started(components, "fast", 52, (50, 2)) as lab:
        yield lab


@pytest.fixture(scope="module")
def zoned_lab(components: Components) -> Iterator[Lab]:
    """A zone of eight nodes beside one of three."""
    with started(components, "fast", 11, (8, 3)) as lab:
        yield lab


def test_claims_about_a_zones_rate_fall_and_what_counts_as_lost_does_not(large_lab: Lab, run: Run) -> None:
    ended = run(large_lab, somebody_else_evicts, shipped("rate_limits/test_more_and_more_nodes.py"))

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_RATES
    assert set(ended.labels("rate-limits.unhealthy-definition")) <= {"conforms", "unproven: scaled"}


def test_claims_about_fifty_nodes_and_one_more_fall(large_lab: Lab, run: Run) -> None:
    assert deviating(run, large_lab, somebody_else_evicts, shipped("rate_limits/test_large_zone.py")) == (
        IN_LARGE_ZONE
    )


def test_claims_about_a_lost_cluster_fall_where_a_stranger_is_well(zoned_lab: Lab, run: Run) -> None:
    whole = shipped("zones/test_lost_cluster.py")
    altered = each(somebody_else_evicts, evictions_resume_at_once, a_stranger_is_well)
    ended = run(zoned_lab, altered, whole, "-k", "until_a_node_is_back")

    fallen = {claim for claim in ended.claims() if "deviates" in ended.labels(claim)}
    assert fallen == IN_LOST_CLUSTER - {"zones.single-zone-cluster"}


def test_a_lost_cluster_of_one_zone_falls(whole_lab: Lab, run: Run) -> None:
    whole = shipped("zones/test_lost_cluster.py")
    ended = run(whole_lab, evictions_go_on_when_all_is_lost, whole, "-k", "of_no_zones")

    assert "deviates" in ended.labels("zones.single-zone-cluster")


def test_the_rate_of_a_lost_zone_falls_and_its_workload_shifts(zoned_lab: Lab, run: Run) -> None:
    lost, told = shipped("zones/test_lost_zone.py"), shipped("rate_limits/test_thresholds.py")
    ended = run(zoned_lab, somebody_else_evicts, lost, told)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_LOST_ZONE
    assert ended.labels("zones.workload-shifts") == ["conforms"]
