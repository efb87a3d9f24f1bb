"""Partitions in one direction, and one that ends before the grace period."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows

ENDS_S = 10.0
OK = {"status": 200, "body": "ok"}
NO_ANSWER = {"status": {"$in": [0, 500, 502, 503, 504]}}
"""The answer for an unreachable kubelet; status 0 is no answer within the timeout."""


@needs(nodes=3, faulted=2, duration_s="3G + 10")
def test_node_becomes_unknown_only_if_its_requests_are_dropped(lab: Lab, claim: Expectations) -> None:
    """One node cannot send requests, the other cannot receive any.

    Before, the second was cut off in both directions for half a grace period.
    """
    one_way_from_apiserver = claim("monitoring.one-way-from-apiserver")
    sending_blocked, receiving_blocked = lab.targets
    pod = lab.run(actions.run_pod(on=receiving_blocked))
    grace_s, pass_s = lab.configuration["G"], lab.configuration["P"]
    half_s = grace_s / 2
    # The kubelet asks the API server whether the request is allowed, and caches its answer for five minutes.
    sending_health, receiving_health = (
        actions.read(f"/api/v1/nodes/{node}/proxy/healthz") for node in (sending_blocked, receiving_blocked)
    )

    with lab.record():
        claim("monitoring.one-way-to-apiserver").expect_value(lab.run(sending_health), OK)
        one_way_from_apiserver.expect_value(lab.run(receiving_health), OK)
        with lab.inject(faults.partition(receiving_blocked)) as blip:
            lab.wait_for(receiving_blocked.unknown.never_after(blip.injected_at, half_s))
        claim("monitoring.short-blip").never(
            receiving_blocked.unknown, throughout=grace_s + 3 * pass_s, after=blip.injected_at
        )
        with (
            lab.inject(faults.partition(sending_blocked, "node-to-api")) as sending_fault,
            lab.inject(faults.partition(receiving_blocked, "api-to-node")) as receiving_fault,
        ):
            one_way_from_apiserver.expect_value(lab.run(receiving_health), NO_ANSWER)
            claim("monitoring.one-way-to-apiserver").expect(
                sending_blocked.unknown,
                within=windows.detection_from_fault(),
                after=sending_fault.injected_at,
            )
            claim("monitoring.one-way-to-apiserver").expect_value(lab.run(sending_health), OK)
            lab.run(actions.delete_pod(pod))
            one_way_from_apiserver.expect(pod.removal, within=ENDS_S, after=pod.deletion)
            one_way_from_apiserver.never(
                receiving_blocked.unknown, throughout=grace_s + half_s, after=receiving_fault.injected_at
            )
        # This request may end with the connection that the fault broke; the next one has a new connection.
        lab.run(receiving_health)
        one_way_from_apiserver.expect_value(lab.run(receiving_health), OK)
