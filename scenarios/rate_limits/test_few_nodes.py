"""Eviction rates with few lost nodes."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE
from nodeproof.scenario.sources import Log

NEW_STATE = "Controller detected that zone is now in new state"
SECOND_TAINT = "max(P, 1/E) + 1/E + 1"
APART = f"1.04R + 2P + {SECOND_TAINT}"
"""Upper bound: the last heartbeats may be a renewal apart."""


@needs(nodes=3, faulted=2, duration_s="2G + 3/E + 20")
def test_two_lost_nodes_of_three_do_not_disrupt_their_zone(lab: Lab, claim: Expectations) -> None:
    """Two thirds of the zone are lost, above the threshold of 55 percent.

    Pods of one node leave together, although the zone's rate would allow one per 1/E.
    """
    entries, nodes = lab.nodes(), lab.targets
    lab.require_lab(
        len(entries) == 3, otherwise="the lab does not have three nodes", next_step="run it with --nodes=3"
    )
    lost = [entry for entry in entries if entry.name in nodes]
    state_changes = Log("kube-controller-manager", NEW_STATE, about=f':{entries[0].zone}"')
    pods = [
        lab.run(actions.run_pod(on=lab.target, tolerates_unreachable_s=lab.toleration_s)) for _pod in range(3)
    ]
    taints = {node: node.taint(UNREACHABLE).added for node in nodes}
    second_taint = windows.up_to(SECOND_TAINT)
    # The zone's token bucket starts with one token.
    apart = windows.formula("within", APART, "1/E - slack", f"{APART} + slack")

    with lab.record(), lab.inject(faults.outage(*lost)) as fault:
        for node in nodes:
            lab.wait_until_lost(node, fault)
        for node in nodes:
            claim("rate-limits.minimum-three").expect(taints[node], within=second_taint, after=node.unknown)
        for pod in pods:
            claim("rate-limits.limits-taints-not-pods").expect(
                pod.deletion, within=windows.toleration(lab.toleration_s), after=taints[lab.target]
            )
        for node in nodes:
            claim("rate-limits.minimum-three").never(
                state_changes.line, throughout=lab.quiet_s, after=node.unknown
            )
        claim("rate-limits.minimum-three").expect_later(
            moments.all_of(*taints.values()), within=apart, after=moments.no_execute_written(*nodes)
        )
        lab.collect(state_changes)
