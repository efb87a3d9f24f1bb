"""A node that is not ready although it reports."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, Node, Workload, workload
from nodeproof.scenario.types import Moment

PLACED_S = 5.0


@needs(nodes=2, faulted=1, duration_s="20")
def test_not_ready_node_is_tainted_and_its_pods_stay_ready(lab: Lab, claim: Expectations) -> None:
    node, other = lab.target, lab.others[0]
    pod = lab.run(actions.run_pod(on=node))
    identity, unready = {"namespace": pod.namespace, "name": pod.name}, {"type": "Ready", "status": "False"}
    pod_not_ready = moments.written("pods", {"metadata": identity, "status": {"conditions": [unready]}})
    not_marked = claim("conditions.pods-not-marked-on-kubelet-false")
    daemons = claim("daemonset.not-created-on-not-ready")
    a_pass_s = 2 * lab.configuration["P"] + 3.0
    old, new = workload("DaemonSet"), workload("DaemonSet")

    with lab.record():
        lab.run(old.make)
        lab.wait_for(pod_meant_for(old, node).after(old.make.begun, PLACED_S))
        expect_unlimited_tolerations(claim, old)
        with lab.inject(faults.patch_ready(node)) as fault:
            expect_taint(claim, node, other, windows.absence(a_pass_s))
            not_marked.never(pod_not_ready, throughout=a_pass_s, after=node.not_ready)
            lab.run(new.make)
            daemons.expect(pod_meant_for(new, other), within=PLACED_S, after=new.make.begun)
            a_pass = windows.absence_including_anchor(a_pass_s)
            daemons.never(old.deletion, throughout=a_pass, after=node.not_ready)
            daemons.never(pod_meant_for(new, node), throughout=lab.quiet_s, after=new.make.begun)
        lab.wait_for(node.ready.after(fault.injected_at, windows.recovery()))
        for effect, within in (("NoSchedule", windows.up_to(2)), ("NoExecute", windows.monitor_pass())):
            removal = node.taint(NOT_READY, effect).removed
            claim("taints.removed-on-recovery").expect(removal, within=within, after=node.ready)
        daemons.expect(pod_meant_for(new, node), within=PLACED_S, after=fault.healing_at)

    claim("taints.not-ready-noexecute").expect_none(node.taint(UNREACHABLE).added, **fault.span)


def expect_unlimited_tolerations(claim: Expectations, daemons: Workload) -> None:
    """Expect that the pods tolerate a failed node for ever; a time limit may be longer than the scenario."""
    for key in (NOT_READY, UNREACHABLE):
        unlimited = {"key": key, "effect": "NoExecute", "tolerationSeconds": {"$present": False}}
        tolerant = daemons.pod_written(spec={"tolerations": [unlimited]})
        kept = claim("daemonset.not-evicted-on-node-failure")
        kept.expect(tolerant, within=PLACED_S, after=daemons.make.begun)


def expect_taint(claim: Expectations, node: Node, other: Node, a_pass: windows.WindowSpec) -> None:
    """Expect that only the node that is not ready gets the taint."""
    taint, elsewhere = (name.taint(NOT_READY).added for name in (node, other))
    claim("taints.not-ready-noexecute").expect(taint, within=windows.taint_pass(), after=node.not_ready)
    claim("taints.not-ready-noexecute").expect_later(elsewhere.never_after(node.not_ready, a_pass))


def pod_meant_for(pods: Workload, node: Node) -> Moment:
    """Match a DaemonSet's pod that the scheduler may only bind to this node."""
    terms = [{"matchFields": [{"key": "metadata.name", "values": [node]}]}]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pods.pod_written(spec={"affinity": {"nodeAffinity": affinity}})
