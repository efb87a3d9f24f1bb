"""Partially disrupted zones of as many nodes as the limit for small zones, and of one more (large)."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Node
from nodeproof.scenario.types import Check, Moment, NodeInfo

MANAGER = "kube-controller-manager"
SMALL, LIMIT = 27, 50
"""SMALL is the limit that a flag sets, LIMIT its default."""


@needs(nodes=2)
def test_zones_of_50_nodes_are_small_by_default(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        claim("rate-limits.limit-default").expect_later(checks.default_of("large-cluster-size-threshold"))


@needs(
    nodes=(SMALL, 2), faulted=16, radius="zone", components=(MANAGER,), profile="fast",
    duration_s="G + 4/E2 + 4/E + 45",
)  # fmt: skip
def test_disrupted_zone_stops_evictions_at_the_limit_and_slows_above_it(
    lab: Lab, claim: Expectations
) -> None:
    """14 lost nodes of 27 are 52 percent, and 15 disrupt the zone; of 28 nodes, 16 do."""
    boundary_fifty = claim("rate-limits.boundary-fifty")
    on_change = claim("rate-limits.limiter-only-on-state-change")
    *lost, one, other = [node for node in lab.nodes() if node.name in lab.targets]
    zone = [node.name for node in lab.nodes() if node.zone == one.zone]
    taint_writes = moments.no_execute_written(*zone)
    all_lost, joined = loss_of(lost), moments.created("nodes", "one-more")
    limit = faults.settings(MANAGER, large_cluster_size_threshold=str(SMALL))
    require_size(lab, len(zone), SMALL)

    with lab.record(), lab.inject(limit), lab.inject(faults.outage(*lost)) as fault:
        lab.wait_for(all_lost.after(fault.injected_at, windows.detection_from_fault()))
        # The first write may have waited for the API, so no gap is judged.
        first_write = moments.first_after(taint_writes, after=all_lost)
        boundary_fifty.expect(first_write, within="1/E + 1", after=all_lost)
        with lab.inject(faults.patch_ready(one.name)):
            boundary_fifty.never(taint_writes, throughout=windows.stopped(), after=Node(one.name).not_ready)
            with lab.inject(faults.patch_ready(other.name)) as other_fault:
                lab.run(actions.join("one-more", one.zone))
                on_change.never(taint_writes, throughout=windows.stopped(), after=joined)
            span = {"after": other_fault.healed_at, "until": Node(other.name).not_ready}
            on_change.expect(checks.spaced(taint_writes, windows.spacing(), at_least=2, **span))
            taints = [Node(node.name).taint(UNREACHABLE).added for node in lost]
            lab.check_still_to_come(taints, at_least=4)
            slow = expect_secondary_rate(lab, claim, taint_writes, other, len(lost) + 2, at_least=2)
            boundary_fifty.expect_later(slow)


@needs(nodes=LIMIT + 1, faulted=29, radius="zone", profile="documented", duration_s="G + 2.2/E2 + 30")
def test_disrupted_zone_of_51_nodes_evicts_one_node_in_100_s(lab: Lab, claim: Expectations) -> None:
    *lost, other = [node for node in lab.nodes() if node.name in lab.targets]
    taint_writes = moments.no_execute_written(*(node.name for node in lab.nodes()))
    require_size(lab, len(lab.nodes()), LIMIT + 1)

    with lab.record(), lab.inject(faults.outage(*lost)) as fault:
        lab.wait_for(loss_of(lost).after(fault.injected_at, windows.detection_from_fault()))
        expect_secondary_rate(lab, claim, taint_writes, other, len(lost) + 1, at_least=1)
        claim("rate-limits.large-secondary").expect_later(checks.default_of("secondary-node-eviction-rate"))


def require_size(lab: Lab, size: int, wanted: int) -> None:
    other_size = f"the zone does not have {wanted} nodes"
    lab.require_lab(size == wanted, otherwise=other_size, next_step="leave out --nodes")


def loss_of(nodes: list[NodeInfo]) -> Moment:
    return moments.all_of(*(Node(node.name).unknown for node in nodes))


def expect_secondary_rate(
    lab: Lab, claim: Expectations, taint_writes: Moment, node: NodeInfo, lost: int, at_least: int
) -> Check:
    """Expect evictions at the secondary rate with one more node lost.

    Until a pass has seen that node, evictions come at the earlier rate.
    """
    with lab.inject(faults.patch_ready(node.name)) as fault:
        a_pass_s = lab.configuration["P"] + 1.0
        lab.wait_for(Node(node.name).ready.never_after(fault.injected_at, a_pass_s))
        unhealthy = lab.observe(probes.zone_metric("unhealthy_nodes_in_zone", node.zone))
        too_early = f"the node monitor does not count {lost} lost nodes yet"
        lab.require_lab(unhealthy.value == lost, otherwise=too_early, next_step="run it on an idle host")
        span = {"after": unhealthy.completed, "until": fault.healing_at}
        rate = checks.spaced(taint_writes, windows.secondary_spacing(), at_least=at_least, **span)
        return claim("rate-limits.large-secondary").expect(rate)
