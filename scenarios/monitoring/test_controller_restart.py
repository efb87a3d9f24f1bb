"""Clocks of the controller manager that a restart resets."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Pod
from nodeproof.scenario.types import Moment

MANAGER = "kube-controller-manager"
TOLERATED = 2
"""In grace periods: longer than half of one and the start of a controller manager."""
NOWHERE = "nowhere"
RETAINED, COLLECTION_S, LONGER_S = 3, 30.0, 10.0
"""RETAINED is the number of finished pods that stay; the collector runs at its start and every 20 s."""
APART_S = 3.0


def pod_removed(pod: Pod) -> Moment:
    return moments.removed("pods", pod.name, pod.namespace)


@needs(nodes=3, faulted=2, components=(MANAGER,), duration_s="2G + 120")
def test_controller_manager_restart_resets_grace_not_toleration(lab: Lab, claim: Expectations) -> None:
    """It forgets when it last heard of a silent node; a pod of a lost one leaves on time all the same."""
    lost, silent = lab.targets
    tolerated_s = int(TOLERATED * lab.configuration["G"])
    pod = lab.run(actions.run_pod(on=lost, tolerates_unreachable_s=tolerated_s))
    unreachable = lost.taint(UNREACHABLE).added
    resets = claim("monitoring.controller-restart-resets")
    survives = claim("eviction.toleration-survives-restart")
    # Half of the grace period was over before the restart. The first pass starts the clock, and a later pass
    # ends it; passes come every P.
    grace = windows.formula("period", "G", "G - P - slack", "G + 2P + 1 + slack")

    with lab.record(), lab.inject(faults.partition(lost)) as fault:
        lab.wait_until_lost(lost, fault)
        lab.wait_for(unreachable.after(lost.unknown, windows.taint_pass()))
        with lab.inject(faults.partition(silent)) as silence:
            lab.wait_for(silent.unknown.never_after(silence.injected_at, lab.configuration["G"] / 2))
            with lab.inject(faults.settings(MANAGER, v="1")) as restart:
                started = moments.first_after(silent.event("RegisteredNode"), after=restart.injected_at)
                resets.expect(silent.unknown, within=grace, after=started)
                survives.expect(pod.deletion, within=windows.toleration(tolerated_s), after=unreachable)
                deletions = probes.metric(MANAGER, "taint_eviction_controller_pod_deletions_total")
                claim("eviction.metrics").expect_value(lab.observe(deletions), 1)


@needs(nodes=2, faulted=1, components=(MANAGER,), duration_s="G + 90")
def test_disabled_taint_eviction_controller_evicts_no_pod(lab: Lab, claim: Expectations) -> None:
    """With a low threshold, it also collects finished pods, the oldest first."""
    node, separate = lab.target, claim("eviction.separate-controller")
    threshold = claim("deletion-gc.terminated-threshold")
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unreachable = node.taint(UNREACHABLE).added
    flags = {"controllers": "*,-taint-eviction-controller", "terminated_pod_gc_threshold": str(RETAINED)}

    with lab.record():
        oldest = lab.run(actions.pending_pod(only_on=NOWHERE))
        lab.wait_for(pod_removed(oldest).never_after(oldest.created, APART_S))
        others = [lab.run(actions.pending_pod(only_on=NOWHERE)) for _number in range(RETAINED)]
        lab.wait_for(pod_removed(others[-1]).never_after(others[-1].created, APART_S))
        # Both ends count: a collector that counts only one of them finds no pod too many.
        for finished in (oldest, *others):
            ended = {"status": {"phase": "Succeeded" if finished == oldest else "Failed"}}
            lab.run(actions.send_request("PATCH", f"{finished.path}/status", ended))
        with lab.inject(faults.settings(MANAGER, **flags)) as restart:
            threshold.expect(pod_removed(oldest), within=COLLECTION_S, after=restart.injected_at)
            with lab.inject(faults.partition(node)) as fault:
                lab.wait_until_lost(node, fault)
                separate.expect(unreachable, within=windows.taint_pass(), after=node.unknown)
                separate.never(pod.deletion, throughout=lab.toleration_s + LONGER_S, after=unreachable)
            # From its creation: the collector runs as soon as it starts, when processes wait for processors.
            for retained in others:
                long_s, removal = COLLECTION_S + LONGER_S, pod_removed(retained)
                threshold.never(removal, throughout=long_s, after=retained.created)


@needs(nodes=2)
def test_controller_manager_rejects_pod_eviction_timeout_flag(lab: Lab, claim: Expectations) -> None:
    """The flag had no effect since 1.18 and was removed in 1.27."""
    unknown_flag = {"status": {"$not": 0}, "stderr": {"$contains": "unknown flag: --pod-eviction-timeout"}}
    with lab.record():
        refusal = lab.run(actions.try_flags(MANAGER, "--pod-eviction-timeout=5m"))
        claim("eviction.pod-eviction-timeout-flag").expect_value(refusal, unknown_flag)
