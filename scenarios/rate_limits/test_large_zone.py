"""A partially disrupted zone of 50 nodes, which is small, and one of 51, which is not."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Check,
    Moment,
    NodeInfo,
    Stage,
    all_came,
    claims,
    condition_became,
    default_of,
    join,
    made,
    metric,
    needs,
    next_of,
    no_execute_written,
    outage,
    ready_patched,
    spaced,
    windows,
)

UNHEALTHY = "node_collector_unhealthy_nodes_in_zone"
SMALL = 50


@claims(
    "rate-limits.boundary-fifty", "rate-limits.limiter-only-on-state-change", "rate-limits.large-secondary"
)
@needs(nodes=(SMALL, 2), faulted=29, radius="zone", profile="fast", lasts="G + 4/E2 + 4/E + 30")
def test_a_disrupted_zone_of_fifty_nodes_stops_and_one_of_fifty_one_slows_down(
    lab: Stage, judge: Judge
) -> None:
    """27 lost of 50 are 54 percent, 28 disrupt the zone, and of 51 they do not: 29 do."""
    *lost, one, other = [node for node in lab.nodes() if node.name in lab.targets]
    zone = [node.name for node in lab.nodes() if node.zone == one.zone]
    evicted = no_execute_written(*zone)
    disrupted, grown = condition_became(one.name, "Ready", "False"), made("nodes", "fifty-first")
    all_lost = are_lost(*(node.name for node in lost))
    lab.expect(len(zone) == SMALL, f"a zone of {SMALL} nodes", "leave out --nodes")

    with lab.record(), lab.inject(outage(*lost)) as cut:
        lab.wait_for(all_lost.after(cut.began, windows.detection_from_fault()))
        # Of the first write nobody knows how long it waited for the API, so that no gap is judged.
        soon = windows.formula("within", "1/E + 1", "-slack", "1/E + 1 + slack")
        below = lab.wait_for(next_of(evicted, after=all_lost).after(all_lost, soon))
        with lab.inject(ready_patched(one.name)):
            stopped = lab.wait_for(evicted.never_after(disrupted, windows.stopped()))
            with lab.inject(ready_patched(other.name)) as more:
                lab.do(join("fifty-first", one.zone))
                unchanged = lab.wait_for(evicted.never_after(grown, windows.stopped()))
            again = condition_became(other.name, "Ready", "False")
            normal = spaced(evicted, windows.spacing(), at_least=2, after=more.healed, until=again)
            lab.wait_for(normal)
            slow = is_evicted_slowly(lab, evicted, other, len(lost) + 2, at_least=2)

    for check in (below, stopped, slow):
        judge("rate-limits.boundary-fifty", check)
    for check in (unchanged, normal):
        judge("rate-limits.limiter-only-on-state-change", check)
    judge("rate-limits.large-secondary", slow)


@claims("rate-limits.large-secondary")
@needs(nodes=SMALL + 1, faulted=29, radius="zone", profile="documented", lasts="G + 2.2/E2 + 30")
def test_a_disrupted_zone_of_fifty_one_nodes_loses_one_in_a_hundred_seconds(lab: Stage, judge: Judge) -> None:
    *lost, other = [node for node in lab.nodes() if node.name in lab.targets]
    evicted = no_execute_written(*(node.name for node in lab.nodes()))
    lab.expect(len(lab.nodes()) == SMALL + 1, f"a zone of {SMALL + 1} nodes", "leave out --nodes")

    with lab.record(), lab.inject(outage(*lost)) as cut:
        lab.wait_for(are_lost(*(node.name for node in lost)).after(cut.began, windows.detection_from_fault()))
        slow = is_evicted_slowly(lab, evicted, other, len(lost) + 1, at_least=1)

    judge("rate-limits.large-secondary", slow)
    judge("rate-limits.large-secondary", default_of("secondary-node-eviction-rate"))


def are_lost(*nodes: str) -> Moment:
    return all_came(*(condition_became(node, "Ready", "Unknown") for node in nodes))


def is_evicted_slowly(lab: Stage, evicted: Moment, node: NodeInfo, lost: int, at_least: int) -> Check:
    """With one more node lost. What comes until a pass has seen that comes at the rate of before."""
    with lab.inject(ready_patched(node.name)) as disrupted:
        a_pass = windows.absence(lab.configuration["P"] + 1.0)
        lab.wait_for(condition_became(node.name, "Ready", "True").never_after(disrupted.began, a_pass))
        seen = lab.look(metric("kube-controller-manager", UNHEALTHY, zone=f":\x00:{node.zone}"))
        lab.expect(
            seen.value == lost, f"one in which a pass has seen {lost} lost nodes", "run it on an idle host"
        )
        slow = spaced(
            evicted,
            windows.secondary_spacing(),
            at_least=at_least,
            after=seen.came,
            until=disrupted.healing,
        )
        return lab.wait_for(slow)
