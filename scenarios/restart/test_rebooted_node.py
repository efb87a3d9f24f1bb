"""Pods of a node that is reset and boots again, some of them after their toleration has ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, NOT_READY, PRESENT, UNREACHABLE, Pod, tolerates
from nodeproof.scenario.types import Injection

SELECTED, STARTS_S = "selected", 60.0
FOR_EVER = (tolerates(UNREACHABLE), tolerates(NOT_READY))
NO_HEARTBEAT = windows.formula("negative", "G - 2", "2", "G")
"""From 2 s on: the last heartbeat before the reset may lie in the slack."""


@dataclass(frozen=True)
class Pods:
    """The pods of the node.

    Args:
        cast: pods of different kinds; like `daemon` and `selected`, they tolerate the outage.
        daemon: pod of a DaemonSet.
        selected: pod that selects a label, which the node loses while it is down.
        bare: pod without a controller, whose toleration ends while the node is down.
        deployment: Deployment whose pod has the same toleration.
    """

    cast: actions.Cast
    daemon: Pod
    selected: Pod
    bare: Pod
    deployment: actions.Workload

    @property
    def recreated(self) -> Sequence[Pod]:
        """Pods that the node still has when it boots, with containers that are recorded."""
        return (self.cast.compound, self.cast.critical, self.cast.patient, self.daemon)


@needs(nodes=3, faulted=1, features=("reset",), duration_s="G + 4P + 35")
def test_rebooted_node_runs_pods_that_still_fit(lab: Lab, claim: Expectations) -> None:
    node = lab.target

    with lab.record():
        pods = run_pods(lab)
        with lab.inject(faults.reset(node)) as fault:
            lab.wait_until_lost(node, fault)
            expect_replacement(lab, claim, pods)
            lab.run(actions.unlabel_node(node, SELECTED))
        expect_heartbeats(lab, claim, fault)
        expect_recreation(claim, pods, fault)
        expect_second_admission(claim, pods, fault)
        expect_no_replacement(claim, pods, fault)


def run_pods(lab: Lab) -> Pods:
    node, daemons, tolerated_s = lab.target, actions.workload("DaemonSet"), lab.toleration_s
    tolerations = [tolerates(key, tolerated_s) for key in (UNREACHABLE, NOT_READY)]
    deployment = actions.workload("Deployment", **actions.preferring(node), tolerations=tolerations)
    lab.run(actions.label_node(node, SELECTED, "yes"))
    for pods in (daemons, deployment):
        lab.start(pods, on=node, within_s=STARTS_S)
    selector = {HOSTNAME_LABEL: node, **actions.labels_of(SELECTED, "yes")}
    selected = lab.run(actions.pending_pod(only_on=node, nodeSelector=selector, tolerations=FOR_EVER))
    lab.wait_for(selected.running.after(selected.created, STARTS_S))
    cast = lab.run(actions.run_cast(on=node, namesake_on=lab.others[0], tolerations=FOR_EVER))
    bare = lab.run(actions.run_pod(on=node, tolerations=tolerations))
    return Pods(cast, lab.run(actions.pod_of(daemons, on=node)), selected, bare, deployment)


def expect_replacement(lab: Lab, claim: Expectations, pods: Pods) -> None:
    """Expect that both pods are deleted once their toleration has ended, and that one is replaced."""
    tainted = lab.target.taint(UNREACHABLE).added
    deployment, elsewhere = pods.deployment, {"$not": {"$in": [None, lab.target]}}
    bound = deployment.pod_written(spec={"nodeName": elsewhere})
    toleration, replaced = windows.toleration(lab.toleration_s), claim("reboot.only-managed-replaced")
    for deletion in (pods.bare.deletion, deployment.deletion):
        replaced.expect(deletion, within=toleration, after=tainted)
    replaced.expect(bound, within=5.0, after=deployment.deletion)
    replaced.expect(deployment.running_on(elsewhere), within=STARTS_S, after=bound)


def expect_no_replacement(claim: Expectations, pods: Pods, fault: Injection) -> None:
    """Expect that the pod without a controller ends with the boot, and does not come back."""
    replaced, bare = claim("reboot.only-managed-replaced"), pods.bare
    replaced.expect(bare.removal, within=windows.recovery(), after=fault.healing_at)
    again = moments.created("pods", bare.name, bare.namespace)
    replaced.never(again, throughout=10.0, after=bare.removal)


def expect_heartbeats(lab: Lab, claim: Expectations, fault: Injection) -> None:
    """Expect that the node is Ready again, but not before it boots, and reports its new boot."""
    node, heartbeats = lab.target, claim("reboot.status-reconciled")
    booted = moments.boot_id_changed(node)
    for moment in (node.lease_renewal, booted):
        heartbeats.expect_later(moment.never_after(fault.injected_at, NO_HEARTBEAT))
    for moment in (node.lease_renewal, node.ready, booted):
        again = moments.first_after(moment, after=fault.healing_at)
        heartbeats.expect(again, within=windows.recovery(), after=fault.healing_at)


def expect_recreation(claim: Expectations, pods: Pods, fault: Injection) -> None:
    """Expect that the node's own pods run again, in other containers."""
    recreated, ended = claim("reboot.containers-recreated"), {"lastState": {"terminated": PRESENT}}
    again = {"restartCount": {"$not": 0}, "state": {"running": PRESENT}, **ended}
    for pod in pods.recreated:
        runs = pod.became({"status": {"containerStatuses": [again]}})
        all_again = pod.became({"status": {"containerStatuses": {"$not": [{"restartCount": 0}]}}})
        for moment in (runs, all_again):
            recreated.expect(moment, within=windows.recovery(), after=fault.healing_at)
        recreated.expect_none(pod.deletion, after=fault.injected_at, until=runs)


def expect_second_admission(claim: Expectations, pods: Pods, fault: Injection) -> None:
    admission = claim("reboot.admission-again")
    rejection = pods.selected.became({"status": {"phase": "Failed", "reason": "NodeAffinity"}})
    admission.expect(rejection, within=windows.recovery(), after=fault.healing_at)
