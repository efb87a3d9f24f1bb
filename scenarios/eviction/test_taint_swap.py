"""A node that is first not ready and then silent, and the time at which its pods leave."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, tolerates

REMAINING_S = 8.0
"""Shortest time from the second taint until the pod is due (s)."""


@needs(nodes=2, faulted=1, duration_s="2G + 60")
def test_eviction_timer_survives_swap_of_not_ready_and_unreachable(lab: Lab, claim: Expectations) -> None:
    """The pod tolerates both taints equally long: a restarted timer would end a grace period later."""
    node, configuration = lab.target, lab.configuration
    tolerated_s = int(configuration["G"] + 3 * configuration["P"] + 20)
    tolerations = [tolerates(key, tolerated_s) for key in (NOT_READY, UNREACHABLE)]
    pod = lab.run(actions.run_pod(on=node, tolerations=tolerations))
    first, second = (node.taint(key).added for key in (NOT_READY, UNREACHABLE))

    with lab.record(), lab.inject(faults.patch_ready(node)):
        lab.wait_for(first.after(node.not_ready, windows.taint_pass()))
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(second.after(node.unknown, windows.monitor_pass()))
            lab.require(second, within_s=tolerated_s - REMAINING_S, after=first)
            survives = claim("eviction.timer-survives-taint-swap")
            survives.expect(pod.deletion, within=windows.toleration(tolerated_s), after=first)
