"""Partitions in one direction, and one that ends before the grace period."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, windows

ENDS_S = 10.0
OK = {"status": 200, "body": "ok"}
NO_ANSWER = {"status": {"$in": [0, 500, 502, 503, 504]}}
"""The answer for an unreachable kubelet; status 0 is no answer within the timeout."""


@needs(nodes=3, faulted=2, lasts="3G + 10")
def test_node_becomes_unknown_only_if_its_requests_are_dropped(lab: Lab, claim: Expectations) -> None:
    """One node cannot send requests, the other cannot receive any.

    Before, the second was cut off in both directions for half a grace period.
    """
    one_way_from_apiserver = claim("monitoring.one-way-from-apiserver")
    mute, deaf = lab.targets
    pod = lab.run(actions.run_pod(on=deaf))
    grace_s, pass_s = lab.configuration["G"], lab.configuration["P"]
    half_s = grace_s / 2
    # The kubelet asks the API server whether the request is allowed, and caches its answer for five minutes.
    mute_health, deaf_health = (
        actions.send_request("GET", f"/api/v1/nodes/{node}/proxy/healthz", may_fail=True)
        for node in (mute, deaf)
    )

    with lab.record():
        claim("monitoring.one-way-to-apiserver").expect_later(checks.shows(lab.run(mute_health), OK))
        one_way_from_apiserver.expect_later(checks.shows(lab.run(deaf_health), OK))
        with lab.inject(faults.partition(deaf)) as blip:
            lab.wait_for(deaf.unknown.never_after(blip.injected_at, windows.absence(half_s)))
        claim("monitoring.short-blip").never(
            deaf.unknown, throughout=windows.absence(grace_s + 3 * pass_s), after=blip.injected_at
        )
        with (
            lab.inject(faults.partition(mute, "node-to-api")) as from_mute,
            lab.inject(faults.partition(deaf, "api-to-node")) as to_deaf,
        ):
            one_way_from_apiserver.expect_later(checks.shows(lab.run(deaf_health), NO_ANSWER))
            claim("monitoring.one-way-to-apiserver").expect(
                mute.unknown, within=windows.detection_from_fault(), after=from_mute.injected_at
            )
            claim("monitoring.one-way-to-apiserver").expect_later(checks.shows(lab.run(mute_health), OK))
            lab.run(actions.send_request("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))
            one_way_from_apiserver.expect(pod.removal, within=windows.prompt(ENDS_S), after=pod.deletion)
            one_way_from_apiserver.never(
                deaf.unknown, throughout=windows.absence(grace_s + half_s), after=to_deaf.injected_at
            )
        one_way_from_apiserver.expect_later(checks.shows(lab.run(deaf_health), OK))
