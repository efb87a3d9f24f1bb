"""Eviction from a NotReady node that still reports, after the default toleration."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, windows
from nodeproof.scenario.kubernetes import NOT_READY


@needs(nodes=2, faulted=1, profile="documented", duration_s="T + 25")
def test_pods_of_not_ready_node_are_evicted_after_default_300_s(lab: Lab, claim: Expectations) -> None:
    """The Ready condition is patched to False; the kubelet still renews its Lease."""
    node, eviction = lab.target, claim("eviction.after-five-minutes-not-ready")
    pod = lab.run(actions.run_pod(on=node))
    taint_added = node.taint(NOT_READY).added

    with lab.record(), lab.inject(faults.patch_ready(node)):
        eviction.expect_later(checks.default_of("default-not-ready-toleration-seconds"))
        lab.wait_for(taint_added.after(node.not_ready, windows.taint_pass()))
        eviction.expect(pod.deletion, within=windows.default_toleration(), after=taint_added)
        until_eviction = windows.absence("T")
        eviction.never(node.unknown, throughout=until_eviction, after=taint_added)
