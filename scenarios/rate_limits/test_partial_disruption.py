"""A zone that loses more and more of its nodes, and the rate at which they are evicted."""

from dataclasses import dataclass

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, ZONE_LABEL, Node
from nodeproof.scenario.types import Check, Expectation, Moment

MANAGER = "kube-controller-manager"
SIZE, ROOM = 20, 27
"""11 lost nodes of 20 are exactly 55 percent. With 29 nodes, the cluster is above a limit of 27."""
FLAGS = {"large_cluster_size_threshold": str(ROOM), "node_eviction_rate": "0.25"}
"""At this rate ten lost nodes last, however slow the harness is: one more is not ready 3 s after it asked."""
SECOND_S = 3.0
"""Time between two nodes (s), of which the second then waits: a period of evictions without a pass."""


@dataclass(frozen=True)
class Evictions:
    """How nodes are evicted: one in a `period` (s, a formula), and slower in zones above `limit` nodes.

    `gaps_before` and `gaps_after` are numbers of gaps between evictions to wait for: before the zone is
    disrupted, and when it no longer is.
    """

    limit: int
    period: str
    gaps_before: int
    gaps_after: int

    def spaced(self, writes: Moment, gaps: int, after: Moment, until: Moment) -> Check:
        """Return the check that evictions come one in a period."""
        earliest, latest = f"{self.period} - slack", f"{self.period} + 0.6 + slack"
        window = windows.formula("period", self.period, earliest, latest)
        return checks.spaced(writes, window, at_least=gaps, after=after, until=until)


def lose_55_percent_of_a_zone(lab: Lab, claim: Expectations, rate: Expectation, evictions: Evictions) -> None:
    """Cut off nodes of a zone, then make one more not ready for a while, which disrupts the zone.

    The zone has `SIZE` nodes, as its others are moved to another zone.
    """
    zone = lab.nodes()[0].zone
    nodes = [node for node in lab.nodes() if node.zone == zone]
    moved, staying = nodes[:-SIZE], nodes[-SIZE:]
    *cut_off, disrupting = staying[: 55 * SIZE // 100]
    is_large = bool(moved) and len(lab.nodes()) > evictions.limit
    too_few = f"the cluster has at most {evictions.limit} nodes, or its zone at most {SIZE}"
    lab.require_lab(is_large, otherwise=too_few, next_step="leave out --nodes")
    elsewhere = faults.set_label(ZONE_LABEL, "elsewhere", {node.name: zone for node in moved})

    taint_writes = moments.no_execute_written(*(node.name for node in staying))
    lost, last = [Node(node.name) for node in cut_off], Node(disrupting.name)
    all_lost = moments.all_of(*(node.unknown for node in lost))

    with lab.inject(elsewhere), lab.inject(faults.outage(*cut_off)) as fault:
        for node in lost:
            lab.wait_until_lost(node, fault)
        for node in lost:
            unscheduled = node.taint(UNREACHABLE, "NoSchedule").added
            rate.expect(unscheduled, within=2, after=node.unknown)
        normal = evictions.spaced(taint_writes, evictions.gaps_before, all_lost, last.not_ready)
        rate.expect(normal)
        claim("rate-limits.limits-taints-not-pods").expect_later(normal)
        with lab.inject(faults.patch_ready(last)):
            stopped = claim("zones.per-zone-policy").never(
                taint_writes, throughout=windows.stopped(), after=last.not_ready
            )
            expect_the_threshold_of_the_zone(claim, normal, stopped)
            for name, value in (("unhealthy_nodes_in_zone", len(lost) + 1), ("zone_health", 45.0)):
                reading = lab.observe(probes.zone_metric(name, zone))
                claim("rate-limits.unhealthy-definition").expect_value(reading, value)
            taint_two_nodes_of_another_zone(lab, claim, rate, evictions, [node.name for node in nodes])
        taints = [node.taint(UNREACHABLE).added for node in lost]
        lab.check_still_to_come(taints, at_least=evictions.gaps_after + 1)
        rate.expect(evictions.spaced(taint_writes, evictions.gaps_after, last.ready, fault.healing_at))


def expect_the_threshold_of_the_zone(claim: Expectations, normal: Check, stopped: Check) -> None:
    for check in (normal, stopped):
        claim("rate-limits.partial-threshold").expect_later(check)
        claim("rate-limits.small-stops").expect_later(check)
        claim("rate-limits.threshold-is-per-zone").expect_later(check)


def taint_two_nodes_of_another_zone(
    lab: Lab, claim: Expectations, rate: Expectation, evictions: Evictions, zone: list[str]
) -> None:
    """Make two targets outside of a zone not ready at about the same time: one waits for the other."""
    first, second = (name for name in lab.targets if name not in zone)
    taints = moments.all_of(*(node.taint(NOT_READY).added for node in (first, second)))
    writes = moments.no_execute_written(first, second)
    first_pass = f"max(P, {evictions.period}) + 1"
    per_zone_policy = claim("zones.per-zone-policy")
    with lab.inject(faults.patch_ready(first)), lab.inject(faults.patch_ready(second)):
        lab.check_not_due(taints, second.not_ready, since=first.not_ready, due_s=SECOND_S)
        per_zone_policy.expect(writes, within=first_pass, after=first.not_ready)
        per_zone_policy.expect(taints, within=f"{first_pass} + {evictions.period}", after=second.not_ready)
        # Either of them may be the first.
        rate.expect_later(evictions.spaced(writes, 1, after=first.not_ready, until=taints))


@needs(
    nodes=(ROOM, 2), faulted=(18, 2), radius="zone", components=(MANAGER,), profile="fast",
    duration_s="G + 60",
)  # fmt: skip
def test_zone_evicts_at_configured_rate_until_55_percent_are_lost(lab: Lab, claim: Expectations) -> None:
    evictions = Evictions(ROOM, "4", gaps_before=2, gaps_after=2)
    with lab.record(), lab.inject(faults.settings(MANAGER, **FLAGS)):
        lose_55_percent_of_a_zone(lab, claim, claim("rate-limits.flag"), evictions)


@needs(nodes=(49, 2), faulted=(40, 2), radius="zone", profile="documented", duration_s="G + 7/E + 1.2/E2")
def test_zone_evicts_one_node_every_10_s_until_55_percent_are_lost(lab: Lab, claim: Expectations) -> None:
    rate = claim("rate-limits.default")
    with lab.record():
        lose_55_percent_of_a_zone(lab, claim, rate, Evictions(50, "1/E", gaps_before=2, gaps_after=1))
    rate.expect_later(checks.default_of("node-eviction-rate"))
