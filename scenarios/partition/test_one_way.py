"""Partitions in one direction, and one that ends before the grace period."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows

OK = {"status": 200, "body": "ok"}
NO_ANSWER = {"status": {"$in": [0, 500, 502, 503, 504]}}
"""The answer for an unreachable kubelet; status 0 is no answer within the timeout."""


@needs(nodes=3, faulted=2, duration_s="3G + 10")
def test_node_becomes_unknown_only_if_its_requests_are_dropped(lab: Lab, claim: Expectations) -> None:
    """One node cannot send requests, the other cannot receive any.

    Before, the second was cut off in both directions for half a grace period.
    """
    to_server = claim("monitoring.one-way-to-apiserver")
    from_server = claim("monitoring.one-way-from-apiserver")
    sending_blocked, receiving_blocked = lab.targets
    pod = lab.run(actions.run_pod(on=receiving_blocked))
    grace_s, pass_s = lab.configuration["G"], lab.configuration["P"]
    # The kubelet asks the API server whether the request is allowed, and caches its answer for five minutes.
    sending_health = actions.read(f"/api/v1/nodes/{sending_blocked}/proxy/healthz")
    receiving_health = actions.read(f"/api/v1/nodes/{receiving_blocked}/proxy/healthz")
    not_received = receiving_blocked.unknown

    with lab.record():
        to_server.expect_value(lab.run(sending_health), OK)
        from_server.expect_value(lab.run(receiving_health), OK)
        with lab.inject(faults.partition(receiving_blocked)) as blip:
            lab.wait_for(not_received.never_after(blip.injected_at, grace_s / 2))
        short_blip = claim("monitoring.short-blip")
        short_blip.never(not_received, throughout=grace_s + 3 * pass_s, after=blip.injected_at)
        with (
            lab.inject(faults.partition(sending_blocked, "node-to-api")) as sending_fault,
            lab.inject(faults.partition(receiving_blocked, "api-to-node")) as receiving_fault,
        ):
            from_server.expect_value(lab.run(receiving_health), NO_ANSWER)
            lost, detection = sending_blocked.unknown, windows.detection_from_fault()
            to_server.expect(lost, within=detection, after=sending_fault.injected_at)
            to_server.expect_value(lab.run(sending_health), OK)
            lab.run(actions.delete_pod(pod))
            from_server.expect(pod.removal, within=10.0, after=pod.deletion)
            from_server.never(not_received, throughout=1.5 * grace_s, after=receiving_fault.injected_at)
        # This request may end with the connection that the fault broke; the next one has a new connection.
        lab.run(receiving_health)
        from_server.expect_value(lab.run(receiving_health), OK)
