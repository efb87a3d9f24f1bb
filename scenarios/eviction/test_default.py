"""Default tolerations, and eviction from an unreachable node after them."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, windows
from nodeproof.scenario.kubernetes import UNREACHABLE


@needs(nodes=2)
def test_api_server_default_tolerations_are_300_s(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        for constant in ("default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds"):
            claim("eviction.default-tolerations-injected").expect_later(checks.default_of(constant))


@needs(nodes=2, faulted=1, profile="documented", duration_s="G + T + 20")
def test_pods_of_unreachable_node_are_evicted_after_default_300_s(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    pod = lab.run(actions.run_pod(on=node))
    taint_added = node.taint(UNREACHABLE).added

    with lab.record(), lab.inject(faults.partition(node)) as fault:
        # The wait counts from the cut, the window of the claim from the last heartbeat.
        lab.wait_until_lost(node, fault)
        claim("monitoring.detection-time").expect_later(node.detection)
        lab.wait_for(taint_added.after(node.unknown, windows.taint_pass()))
        toleration = checks.default_of("default-unreachable-toleration-seconds")
        claim("eviction.after-five-minutes-unreachable").expect_later(toleration)
        eviction = claim("eviction.after-five-minutes-unreachable")
        eviction.expect(pod.deletion, within=windows.default_toleration(), after=taint_added)
