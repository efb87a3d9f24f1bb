"""Rate and zone scenarios on a cluster in which a second client evicts nodes, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import WATCHED, node
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from tests.acceptance.alterations import BUGS_TOO, combined
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Deviate, Run, started
from tests.markers import falls

Json = Any
STRANGER = "stranger"
pytestmark = [pytest.mark.alone, BUGS_TOO]
INTERVAL_S = 3.0
"""Often enough for each judged interval, and rarely enough to leave nodes."""
AT_ONCE_S = 0.4


def somebody_else_evicts(cluster: Cluster) -> None:
    """Taint one more lost node every few seconds, in the zone that has lost most, like the controller."""
    api = cluster.lab.cluster.api

    def waiting() -> list[Json]:
        return [item for item in most_lost(cluster) if not has_taint(item, UNREACHABLE, "NoExecute")]

    cluster.until_recorded('"step":"injected"')
    while not cluster.over.wait(INTERVAL_S):
        for item in waiting()[-1:]:
            taints = [*item["spec"].get("taints", ()), {"key": UNREACHABLE, "effect": "NoExecute"}]
            api.patch(node(item["metadata"]["name"]), {"spec": {"taints": taints}})


def evictions_go_on_when_all_is_lost(cluster: Cluster) -> None:
    """Evict a lost node repeatedly once the third node of three is lost."""
    cluster.until_injected("ready-patched", often=2)
    evict_again_and_again(cluster)


def evictions_resume_at_once(cluster: Cluster) -> None:
    """Evict a lost node repeatedly once the first node has returned, so that one eviction comes too soon."""
    cluster.until_recorded('"step":"healing"')
    evict_again_and_again(cluster)


def evict_again_and_again(cluster: Cluster) -> None:
    """Remove the taint of a lost node and add it again, so that it is written."""
    api = cluster.lab.cluster.api
    while not cluster.over.wait(AT_ONCE_S):
        for item in most_lost(cluster)[:1]:
            others = [taint for taint in item["spec"].get("taints", ()) if taint["effect"] != "NoExecute"]
            for taints in (others, [*others, {"key": UNREACHABLE, "effect": "NoExecute"}]):
                api.patch(node(item["metadata"]["name"]), {"spec": {"taints": taints}})


def a_stranger_is_well(cluster: Cluster) -> None:
    """Create a Node without a machine and report its status, so that never the whole cluster is lost."""
    api = cluster.lab.cluster.api
    cluster.until_injected("outage")
    api.create(WATCHED["nodes"], {"metadata": {"name": STRANGER}})
    try:
        while not cluster.over.wait(INTERVAL_S):
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            ready = {"type": "Ready", "status": "True", "reason": "Altered", "lastHeartbeatTime": now}
            api.patch(f"{node(STRANGER)}/status", {"status": {"conditions": [ready]}})
    finally:
        api.delete(node(STRANGER))


def most_lost(cluster: Cluster) -> list[Json]:
    """Return the lost nodes of the zone that has lost most."""
    lost = [item for item in cluster.lab.cluster.api.get(WATCHED["nodes"])["items"] if is_lost(item)]
    zones = Counter(zone_of(item) for item in lost)
    return [item for item in lost if zone_of(item) == zones.most_common(1)[0][0]]


def is_lost(item: Json) -> bool:
    return condition_status(item, "Ready") == "Unknown"


def zone_of(item: Json) -> str:
    return str(item["metadata"]["labels"].get(ZONE_LABEL, ""))


@pytest.fixture(scope="module")
def large_lab(components: Components) -> Iterator[LabHandle]:
    """Return a lab with a zone of fifty nodes and one of two."""
    with started(components, "fast", 52, (50, 2)) as lab:
        yield lab


@pytest.fixture(scope="module")
def zoned_lab(components: Components) -> Iterator[LabHandle]:
    """Return a lab with a zone of eight nodes and one of three."""
    with started(components, "fast", 11, (8, 3)) as lab:
        yield lab


@falls("rate-limits.flag", "rate-limits.limits-taints-not-pods", "rate-limits.partial-threshold")
@falls("rate-limits.small-stops", "rate-limits.threshold-is-per-zone", "zones.per-zone-policy")
def test_zone_rate_claims_deviate_but_the_unhealthy_definition_holds(
    large_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    ended = run(large_lab, somebody_else_evicts, shipped("rate_limits/test_partial_disruption.py"))

    assert ended.deviating() == claims
    assert set(ended.labels("rate-limits.unhealthy-definition")) <= {"conforms", "unproven: scaled"}


@falls("rate-limits.boundary-fifty", "rate-limits.large-secondary")
@falls("rate-limits.limiter-only-on-state-change")
def test_large_zone_claims_deviate(large_lab: LabHandle, deviate: Deviate) -> None:
    deviate(large_lab, somebody_else_evicts, shipped("rate_limits/test_large_zone.py"))


@falls("zones.all-down-no-evictions", "zones.all-down-untaints", "zones.exclude-disruption-label")
@falls("zones.exit-resets-probe-time", "zones.recovery-resumes")
def test_lost_cluster_claims_deviate_if_a_foreign_node_is_healthy(
    zoned_lab: LabHandle, deviate: Deviate
) -> None:
    whole = shipped("zones/test_lost_cluster.py")
    altered = combined(somebody_else_evicts, evictions_resume_at_once, a_stranger_is_well)
    deviate(zoned_lab, altered, whole, "-k", "all_zones_are_down")


@falls("zones.single-zone-cluster")
def test_single_zone_cluster_claim_deviates_if_evictions_continue(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    whole = shipped("zones/test_lost_cluster.py")
    ended = run(whole_lab, evictions_go_on_when_all_is_lost, whole, "-k", "single_zone_cluster")

    assert ended.deviating() >= claims


@falls("rate-limits.threshold-flags", "zones.full-zone-normal-rate")
def test_lost_zone_rate_claims_deviate_and_workload_still_shifts(
    zoned_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    lost, thresholds = shipped("zones/test_lost_zone.py"), shipped("rate_limits/test_thresholds.py")
    ended = run(zoned_lab, somebody_else_evicts, lost, thresholds)

    assert ended.deviating() == claims
    assert ended.labels("zones.workload-shifts") == ["conforms"]
