"""Pods of a node while its kubelet restarts: running, deleted and new ones, and one that no longer fits."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, PRESENT, STATIC_PODS, Cast, Pod, mirror_pod, unique
from nodeproof.scenario.types import Injection, Moment

SELECTED, STARTS_S = "selected", 60.0
RESTARTS_S = 30.0
"""Longest time from the start of a kubelet until it has synchronized its pods."""
OLD_ENOUGH_S = 12.0
"""A kubelet that starts takes no container for one that ran before if it is younger than 10 s.

Source: kubeletRestartGracePeriod in pkg/kubelet/prober/prober_manager.go; a start has whole seconds.
"""
UNCHANGED = windows.absence_including_anchor(35.0)
"""From the start of the kubelet: longer than `RESTARTS_S`, in which it must have synchronized its pods."""
PROBED = {
    "name": "main",
    "image": "nodeproof.local/busybox:1",
    "command": ["sleep", "3600"],
    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10},
}
"""A kubelet that has just started waits for a random part of the period before it probes."""


@dataclass(frozen=True)
class Pods:
    """The pods of the node.

    Args:
        static: static pod.
        cast: pods of different kinds; `patient` is deleted while the kubelet is down.
        daemon: pod of a DaemonSet.
        probed: Deployment with a Service, whose pod has a readiness probe.
        selected: pod that selects a label, which the node loses while the kubelet is down.
        ended: pod that was deleted before and has ended; a finalizer keeps its object.
    """

    static: Pod
    cast: Cast
    daemon: Pod
    probed: actions.Workload
    selected: Pod
    ended: Pod

    @property
    def unchanged(self) -> Sequence[Pod]:
        """Pods that nothing but the restart happens to, with containers that are recorded."""
        return (self.static, self.cast.compound, self.cast.critical, self.daemon)


@needs(nodes=2, faulted=1, duration_s="80")
def test_restarted_kubelet_keeps_pods_that_still_fit(lab: Lab, claim: Expectations) -> None:
    node, static, withdrawn = lab.target, mirror_pod(lab.target), mirror_pod(lab.target)
    with_static_pods = faults.kubelet_settings(node, staticPodPath=STATIC_PODS)
    reboot_event, rebooted = (claim("naming.reboot-event"), node.event("Rebooted"))

    with (
        lab.record(extra_resources=("endpointslices",)),
        lab.inject(faults.static_pod(static)),
        ExitStack() as manifest,
    ):
        manifest.enter_context(lab.inject(faults.static_pod(withdrawn)))
        with lab.inject(with_static_pods) as settings:
            for mirror in (static, withdrawn):
                lab.wait_for(mirror.running.after(settings.requested_at, STARTS_S))
            pods = run_pods(lab, static)
            lab.wait_for(node.unknown.never_after(pods.ended.deletion, OLD_ENOUGH_S))
            with lab.inject(faults.unit_down(node)) as fault:
                manifest.close()
                lab.run(actions.unlabel_node(node, SELECTED))
                lab.run(actions.send_request("DELETE", pods.cast.patient.path))
                new = lab.run(actions.pending_pod(only_on=node))
                lab.wait_for(new.bound.after(new.created, windows.BIND_S))
            expect_desired_state(claim, pods, new, withdrawn, fault)
            expect_second_admission(claim, pods, fault)
            expect_same_containers(claim, pods, fault)
            expect_same_readiness(claim, pods, fault)
            reboot_event.never(rebooted, throughout=UNCHANGED, after=fault.healing_at)
            back = moments.first_after(node.lease_renewal, after=fault.healing_at)
            reboot_event.expect_later(back, within=RESTARTS_S, after=fault.healing_at)
            lab.run(actions.send_request("PATCH", pods.ended.path, {"metadata": {"finalizers": None}}))


def run_pods(lab: Lab, static: Pod) -> Pods:
    """Run the pods, and wait until the Service of one has an endpoint."""
    node, daemons = lab.target, actions.workload("DaemonSet")
    probed = actions.workload("Deployment", nodeSelector={HOSTNAME_LABEL: node}, containers=[PROBED])
    lab.run(actions.label_node(node, SELECTED, "yes"))
    for pods in (daemons, probed):
        lab.start(pods, on=node, within_s=STARTS_S)
    lab.run(actions.service(probed))
    selector = {HOSTNAME_LABEL: node, **actions.labels_of(SELECTED, "yes")}
    selected = lab.run(actions.pending_pod(only_on=node, nodeSelector=selector))
    lab.wait_for(selected.running.after(selected.created, STARTS_S))
    cast = lab.run(actions.run_cast(on=node, namesake_on=lab.others[0]))
    ended = end_pod(lab)
    ready = slice_written(probed, endpoints=[{"conditions": {"ready": True}}])
    lab.wait_for(ready.after(probed.make.begun, STARTS_S))
    lab.wait_until_quiet(slice_written(probed))
    return Pods(static, cast, lab.run(actions.pod_of(daemons, on=node)), probed, selected, ended)


def end_pod(lab: Lab) -> Pod:
    """Run a pod with a finalizer, delete it, and wait until its container has ended."""
    pod = Pod("nodeproof", unique("held"), lab.target)
    lab.run(actions.create_pod(pod, finalizers=["nodeproof.dev/held"], terminationGracePeriodSeconds=1))
    lab.wait_for(pod.running.after(pod.created, STARTS_S))
    lab.run(actions.send_request("DELETE", pod.path))
    ended = pod.became({"status": {"containerStatuses": [{"state": {"terminated": PRESENT}}]}})
    lab.wait_for(ended.after(pod.deletion, STARTS_S))
    return pod


def expect_desired_state(claim: Expectations, pods: Pods, new: Pod, withdrawn: Pod, fault: Injection) -> None:
    """Expect that a deleted pod ends, a new one starts, and one that has ended does not start again.

    The static pod `withdrawn`, whose file was removed, leaves no mirror pod.
    """
    reconciled = claim("kubelet-restart.desired-state")
    reconciled.expect(new.running, within=RESTARTS_S, after=fault.healing_at)
    for pod in (pods.cast.patient, withdrawn):
        reconciled.expect(pod.removal, within=RESTARTS_S, after=fault.healing_at)
    runs = pods.ended.became({"status": {"containerStatuses": [{"state": {"running": PRESENT}}]}})
    reconciled.never(runs, throughout=UNCHANGED, after=fault.healing_at)


def expect_second_admission(claim: Expectations, pods: Pods, fault: Injection) -> None:
    """Expect that the pod that no longer fits is rejected and ends, and no other.

    With containers that exit with 0 it ends as Succeeded (docs/findings/rejected-pod-ends-succeeded.md).
    """
    admission, name = claim("kubelet-restart.admission-again"), pods.selected.name
    rejection = moments.event_reported("NodeAffinity", "Pod", name, "Predicate NodeAffinity failed")
    end = pods.selected.became({"status": {"phase": {"$in": ["Failed", "Succeeded"]}}})
    for moment in (rejection, end):
        admission.expect(moment, within=RESTARTS_S, after=fault.healing_at)
    for pod in (*pods.unchanged, pods.cast.system):
        failed = pod.became({"status": {"phase": {"$not": "Running"}}})
        admission.never(failed, throughout=UNCHANGED, after=fault.healing_at)


def expect_same_containers(claim: Expectations, pods: Pods, fault: Injection) -> None:
    """Expect that every container keeps its id, and that no pod is deleted."""
    unchanged, path = claim("kubelet-restart.containers-continue"), "status.containerStatuses[].containerID"
    for pod in pods.unchanged:
        for moment in (moments.changed("pods", pod.name, path, pod.namespace), pod.deletion):
            unchanged.never(moment, throughout=UNCHANGED, after=fault.healing_at)


def expect_same_readiness(claim: Expectations, pods: Pods, fault: Injection) -> None:
    """Expect that every pod stays ready, and that no EndpointSlice changes."""
    readiness = claim("kubelet-restart.readiness-preserved")
    unready = pods.probed.pod_written(status={"conditions": [{"type": "Ready", "status": "False"}]})
    for moment in (unready, slice_written(pods.probed), *(pod.unready for pod in pods.unchanged)):
        readiness.never(moment, throughout=UNCHANGED, after=fault.healing_at)


def slice_written(over: actions.Workload, **pattern: object) -> Moment:
    """Match a write of an EndpointSlice of a workload's Service."""
    labels = {"kubernetes.io/service-name": over.name}
    return moments.written("endpointslices", {"metadata": {"labels": labels}, **pattern})
