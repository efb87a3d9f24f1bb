"""A zone that loses more and more of its nodes, and the rate at which they are evicted."""

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, ZONE_LABEL, Node
from nodeproof.scenario.types import Check, Expectation

MANAGER = "kube-controller-manager"
SIZE, ROOM = 20, 21
"""11 lost nodes of 20 are exactly 55 percent. With 23 nodes, the cluster is above a limit of 21."""
UNHEALTHY, HEALTH = "node_collector_unhealthy_nodes_in_zone", "node_collector_zone_health"
SECOND = "max(P, 1/E) + 1/E + 1"


def lose_55_percent_of_a_zone(
    lab: Lab, claim: Expectations, rate: Expectation, limit: int, gaps_before: int, gaps_after: int
) -> None:
    """Cut off nodes of a zone, then make one more not ready for a while, which disrupts the zone.

    Args:
        lab: the lab, which records.
        claim: the expectations of the scenario.
        rate: the claim about the eviction rate.
        limit: number of nodes above which a zone is large. The cluster has more; the zone has `SIZE`, as its
            other nodes are moved to another zone.
        gaps_before: number of gaps between evictions to wait for before the zone is disrupted.
        gaps_after: number of gaps to wait for when the zone is no longer disrupted.
    """
    zone = lab.nodes()[0].zone
    nodes = [node for node in lab.nodes() if node.zone == zone]
    moved, staying = nodes[:-SIZE], nodes[-SIZE:]
    *cut_off, disrupting = staying[: 55 * SIZE // 100]
    lab.require_lab(
        bool(moved) and len(lab.nodes()) > limit,
        otherwise=f"the cluster has at most {limit} nodes, or its zone at most {SIZE}",
        next_step="leave out --nodes",
    )
    elsewhere = faults.set_label(ZONE_LABEL, "elsewhere", {node.name: zone for node in moved})

    taint_writes = moments.no_execute_written(*(node.name for node in staying))
    lost, last = [Node(node.name) for node in cut_off], Node(disrupting.name)
    all_lost = moments.all_of(*(node.unknown for node in lost))

    with lab.inject(elsewhere), lab.inject(faults.outage(*cut_off)) as fault:
        for node in lost:
            lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
        for node in lost:
            unscheduled = node.taint(UNREACHABLE, "NoSchedule").added
            rate.expect(unscheduled, within=windows.up_to(2), after=node.unknown)
        normal = checks.spaced(
            taint_writes, windows.spacing(), at_least=gaps_before, after=all_lost, until=last.not_ready
        )
        rate.expect(normal)
        claim("rate-limits.limits-taints-not-pods").expect_later(normal)
        with lab.inject(faults.patch_ready(last)):
            stopped = claim("zones.per-zone-policy").never(
                taint_writes, throughout=windows.stopped(), after=last.not_ready
            )
            expect_the_threshold_of_the_zone(claim, normal, stopped)
            for name, value in ((UNHEALTHY, len(lost) + 1), (HEALTH, 45.0)):
                reading = lab.observe(probes.metric(MANAGER, name, zone=f":\x00:{zone}"))
                claim("rate-limits.unhealthy-definition").expect_later(checks.shows(reading, value))
            taint_two_nodes_of_another_zone(lab, claim, [node.name for node in nodes])
        rate.expect(
            checks.spaced(
                taint_writes, windows.spacing(), at_least=gaps_after, after=last.ready, until=fault.healing_at
            )
        )


def expect_the_threshold_of_the_zone(claim: Expectations, normal: Check, stopped: Check) -> None:
    for check in (normal, stopped):
        claim("rate-limits.partial-threshold").expect_later(check)
        claim("rate-limits.small-stops").expect_later(check)
        claim("rate-limits.threshold-is-per-zone").expect_later(check)


def taint_two_nodes_of_another_zone(lab: Lab, claim: Expectations, zone: list[str]) -> None:
    """Make two targets outside of a zone not ready at about the same time."""
    second_pass = windows.up_to(SECOND)
    first, second = (name for name in lab.targets if name not in zone)
    with lab.inject(faults.patch_ready(first)), lab.inject(faults.patch_ready(second)):
        for node, window in ((first, windows.taint_pass()), (second, second_pass)):
            tainted = node.taint(NOT_READY, "NoExecute").added
            claim("zones.per-zone-policy").expect(tainted, within=window, after=node.not_ready)


@needs(
    nodes=(ROOM, 2), faulted=(12, 2), radius="zone", components=(MANAGER,), profile="fast",
    duration_s="G + 7/E + 30",
)  # fmt: skip
def test_zone_evicts_at_configured_rate_until_55_percent_are_lost(lab: Lab, claim: Expectations) -> None:
    rate, limit = claim("rate-limits.flag"), faults.settings(MANAGER, large_cluster_size_threshold=str(ROOM))
    with lab.record(), lab.inject(limit):
        lose_55_percent_of_a_zone(lab, claim, rate, ROOM, gaps_before=3, gaps_after=2)


@needs(nodes=(49, 2), faulted=(40, 2), radius="zone", profile="documented", duration_s="G + 7/E + 1.2/E2")
def test_zone_evicts_one_node_every_10_s_until_55_percent_are_lost(lab: Lab, claim: Expectations) -> None:
    rate = claim("rate-limits.default")
    with lab.record():
        lose_55_percent_of_a_zone(lab, claim, rate, limit=50, gaps_before=2, gaps_after=1)
    rate.expect_later(checks.default_of("node-eviction-rate"))
