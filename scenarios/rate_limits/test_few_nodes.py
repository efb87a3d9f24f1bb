"""Eviction rates with few lost nodes."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE
from nodeproof.scenario.sources import Log

SECOND_TAINT = "max(P, 1/E) + 1/E + 1"
APART = f"1.04R + 2P + {SECOND_TAINT}"
"""Upper bound: the last heartbeats may be a renewal apart."""


@needs(nodes=3, faulted=2, duration_s="2G + 3/E + 20")
def test_two_lost_nodes_of_three_do_not_disrupt_their_zone(lab: Lab, claim: Expectations) -> None:
    """Two thirds of the zone are lost, above the threshold of 55 percent.

    Pods of one node leave together, although the zone's rate would allow one per 1/E.
    """
    entries, nodes, minimum = lab.nodes(), lab.targets, claim("rate-limits.minimum-three")
    other_size = "the lab does not have three nodes"
    lab.require_lab(len(entries) == 3, otherwise=other_size, next_step="run it with --nodes=3")
    lost = [entry for entry in entries if entry.name in nodes]
    new_state = "Controller detected that zone is now in new state"
    state_changes = Log("kube-controller-manager", new_state, about=f':{entries[0].zone}"')
    tolerated_s, not_pods = lab.toleration_s, claim("rate-limits.limits-taints-not-pods")
    pods = [lab.run(actions.run_pod(on=lab.target, tolerates_unreachable_s=tolerated_s)) for _pod in range(3)]
    taints = {node: node.taint(UNREACHABLE).added for node in nodes}
    # The zone's token bucket starts with one token.
    apart = windows.formula("within", APART, "1/E - slack", f"{APART} + slack")

    with lab.record(), lab.inject(faults.outage(*lost)) as fault:
        for node in nodes:
            lab.wait_until_lost(node, fault)
        for node in nodes:
            minimum.expect(taints[node], within=SECOND_TAINT, after=node.unknown)
        for pod in pods:
            toleration = windows.toleration(tolerated_s)
            not_pods.expect(pod.deletion, within=toleration, after=taints[lab.target])
        for node in nodes:
            minimum.never(state_changes.line, throughout=lab.quiet_s, after=node.unknown)
        first, both = moments.no_execute_written(*nodes), moments.all_of(*taints.values())
        minimum.expect_later(both, within=apart, after=first)
        lab.collect(state_changes)
