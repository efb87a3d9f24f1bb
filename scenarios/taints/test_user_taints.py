"""Taints that a user adds to a node: which pods leave and when, and which are scheduled."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import tolerates

KEY, EFFECT = "example.com/drained", "NoExecute"
SECOND_KEY = "example.com/second"
VALUE, OTHER_VALUE = "nodeproof", "other"
EVICTION_S, SCHEDULING_S = 2, 15
LONG_S, SHORT_S = 20, 5


@needs(nodes=2, faulted=1, duration_s="4R + T + 10")
def test_user_taint_evicts_pods_according_to_tolerations(lab: Lab, claim: Expectations) -> None:
    node, short_s = lab.target, lab.toleration_s
    added = node.taint(KEY, EFFECT).added
    scheduling_window = windows.up_to(SCHEDULING_S)
    equal, unequal = (
        {"key": KEY, "operator": "Equal", "value": value, "effect": EFFECT} for value in (VALUE, OTHER_VALUE)
    )

    with lab.record():
        intolerant_pod, finite_pod, tolerant_pod = (
            lab.run(actions.run_pod(on=node, tolerations=tolerations))
            for tolerations in ([], [tolerates(KEY, short_s)], [tolerates(KEY)])
        )
        with lab.inject(faults.taint(node, KEY, EFFECT, VALUE)):
            claim("taints.user-noexecute-evicts").expect(
                intolerant_pod.deletion, within=windows.up_to(EVICTION_S), after=added
            )
            avoided_pods, allowed_pods = (
                [lab.run(actions.pending_pod(only_on=node, tolerations=tolerations)) for tolerations in group]
                for group in (((), (unequal,)), ((equal,), (tolerates(KEY),)))
            )
            for pod in avoided_pods:
                claim("taints.scheduler-avoids").expect(
                    pod.unschedulable, within=scheduling_window, after=pod.created
                )
            for pod in allowed_pods:
                claim("taints.toleration-allows").expect(
                    pod.bound, within=scheduling_window, after=pod.created
                )
            claim("taints.user-noexecute-finite").expect(
                finite_pod.deletion, within=windows.toleration(short_s), after=added
            )
            claim("taints.user-noexecute-finite").never(
                tolerant_pod.deletion,
                throughout=windows.absence_including_anchor(short_s + lab.quiet_s),
                after=added,
            )
            for pod in avoided_pods:
                claim("taints.scheduler-avoids").never(
                    pod.bound, throughout=windows.absence(lab.quiet_s), after=pod.created
                )


@needs(nodes=3, faulted=2, duration_s="15")
def test_user_taints_evict_pods_without_rate_limit(lab: Lab, claim: Expectations) -> None:
    """The zone's rate limiter would delay the evictions of the second node by 1/E (node-eviction-rate)."""
    first, second = lab.targets
    pods = [lab.run(actions.run_pod(on=node)) for node in (first, second)]
    first_added, second_added = (node.taint(KEY, EFFECT).added for node in (first, second))
    half_token_period_s = 0.5 / lab.configuration["E"]

    with lab.record():
        # Injection waits for a recorded heartbeat of its node. Waiting here keeps the two taints together.
        for node in (first, second):
            lab.wait_for(
                node.lease_renewal.after(moments.recording_began(), windows.up_to(2 * lab.configuration["R"]))
            )
        with lab.inject(faults.taint(first, KEY, EFFECT, also=[second])):
            for pod, added in zip(pods, (first_added, second_added), strict=True):
                claim("taints.user-noexecute-not-rate-limited").expect(
                    pod.deletion, within=windows.up_to(1), after=added
                )
        # Else the result proves nothing: the limiter would have a token for each node.
        lab.require(second_added, within_s=half_token_period_s, after=first_added)


@needs(nodes=2, faulted=1, duration_s="30")
def test_pod_leaves_when_its_shortest_toleration_is_over(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    tolerations = [tolerates(KEY, LONG_S), tolerates(SECOND_KEY, SHORT_S)]

    with lab.record():
        pod = lab.run(actions.run_pod(on=node, tolerations=tolerations))
        with lab.inject(faults.taint(node, KEY, EFFECT)), lab.inject(faults.taint(node, SECOND_KEY, EFFECT)):
            claim("taints.user-noexecute-shortest").expect(
                pod.deletion,
                within=windows.toleration(SHORT_S),
                after=node.taint(SECOND_KEY, EFFECT).added,
            )
