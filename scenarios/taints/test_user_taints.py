"""Taints that a user adds to a node: which pods leave and when, and which are scheduled."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import tolerates

KEY, EFFECT = "example.com/drained", "NoExecute"
AT_ONCE_S, PLACED_S = 2, 15


@needs(nodes=2, faulted=1, lasts="4R + T + 10")
def test_user_taint_evicts_pods_according_to_tolerations(lab: Lab, claim: Expectations) -> None:
    node, short_s = lab.target, lab.toleration_s
    added = node.taint(KEY, EFFECT).added
    promptly = windows.prompt(PLACED_S)

    with lab.record():
        intolerant, finite, tolerant = (
            lab.run(actions.run_pod(on=node, tolerations=tolerations))
            for tolerations in ([], [tolerates(KEY, short_s)], [tolerates(KEY)])
        )
        with lab.inject(faults.taint(node, KEY, EFFECT)):
            claim("taints.user-noexecute-evicts").expect(
                intolerant.deletion, within=windows.prompt(AT_ONCE_S), after=added
            )
            avoided, allowed = (
                lab.run(actions.pending_pod(only_on=node, tolerations=tolerations))
                for tolerations in ([], [tolerates(KEY)])
            )
            avoided_created, allowed_created = (pod.created for pod in (avoided, allowed))
            claim("taints.scheduler-avoids").expect(
                avoided.unschedulable, within=promptly, after=avoided_created
            )
            claim("taints.toleration-allows").expect(allowed.bound, within=promptly, after=allowed_created)
            claim("taints.user-noexecute-finite").expect(
                finite.deletion, within=windows.toleration(short_s), after=added
            )
            claim("taints.user-noexecute-finite").never(
                tolerant.deletion, throughout=windows.absence_from_before(short_s + lab.quiet_s), after=added
            )
            claim("taints.scheduler-avoids").never(
                avoided.bound, throughout=windows.absence(lab.quiet_s), after=avoided_created
            )


@needs(nodes=3, faulted=2, lasts="15")
def test_user_taints_evict_pods_without_rate_limit(lab: Lab, claim: Expectations) -> None:
    """The limiter of the zone would delay the second by 1/E: 2 s in `fast`, 10 s by default."""
    first, second = lab.targets
    pods = [lab.run(actions.run_pod(on=node)) for node in (first, second)]
    first_added, second_added = (node.taint(KEY, EFFECT).added for node in (first, second))
    half_s = 0.5 / lab.configuration["E"]

    with lab.record():
        # A fault waits for the first heartbeat of its node.
        for node in (first, second):
            lab.wait_for(
                node.lease_renewal.after(
                    moments.recording_began(), windows.prompt(2 * lab.configuration["R"])
                )
            )
        with lab.inject(faults.taint(first, KEY, EFFECT, also=[second])):
            for pod, added in zip(pods, (first_added, second_added), strict=True):
                claim("taints.user-noexecute-not-rate-limited").expect(
                    pod.deletion, within=windows.prompt(1), after=added
                )
        # With more time between the taints, the limiter would have a token for each.
        lab.require(second_added, within_s=half_s, after=first_added)
