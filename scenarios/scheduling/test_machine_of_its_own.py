"""What the scheduler leaves of a machine to those who are no pods of its."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    STATIC_PODS,
    Check,
    Pod,
    Stage,
    became,
    claims,
    kubelet_settings,
    mirror_pod,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    resources_of,
    shows,
    static_pod,
    task_of,
    unit_up,
    windows,
)

UP_S, TRIED_S, BOUND_S = 60.0, 5.0, 15.0
RESERVED = {
    "kubeReserved": {"cpu": "100m", "memory": "64Mi"},
    "systemReserved": {"cpu": "50m", "memory": "32Mi"},
    "evictionHard": {"memory.available": "96Mi"},
}
CPU, MEMORY = 100 + 50, (64 + 32 + 96) << 20
BY_DEFAULT = 100 << 20
"""Of memory.available, unless a kubelet is told otherwise (pkg/kubelet/eviction/defaults_linux.go)."""

STATIC = 300
"""Thousandths of a processor for which a static pod asks."""
FOREIGN, RUNNING = "nodeproof-foreign", "RUNNING"
FOREIGN_WORK = f"""
nice sh -c 'while :; do :; done' &
exec ctr -n k8s.io run --rm nodeproof.local/pause:1 {FOREIGN}
"""
"""It ends in order on SIGTERM, its container with it."""


def bound_of(pod: Pod) -> Check:
    """It is bound soon after it was made."""
    asked = pod_created(pod.namespace, pod.name)
    return pod_bound(pod.namespace, pod.name).after(asked, windows.prompt(BOUND_S))


def passed_by(pod: Pod, quiet_s: float) -> list[Check]:
    """It is tried, and not bound."""
    asked = pod_created(pod.namespace, pod.name)
    return [
        pod_unschedulable(pod.namespace, pod.name).after(asked, windows.prompt(TRIED_S)),
        pod_bound(pod.namespace, pod.name).never_after(asked, windows.absence(quiet_s)),
    ]


@claims("capacity.allocatable-formula", "scheduling.reserve-for-daemons")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="60")
def test_what_is_reserved_of_a_machine_is_given_to_no_pod(lab: Stage, judge: Judge) -> None:
    """One pod asks for all that is left, another for a thousandth of a processor more."""
    node = lab.target

    with lab.record():
        before = lab.look(resources_of(node))
        has = before.value["capacity"]
        left = has["cpu"] - CPU
        told = became("nodes", node, {"status": {"allocatable": {"cpu": f"{left}m"}}})
        with lab.inject(kubelet_settings(node, **RESERVED)) as reserved:
            lab.wait_for(told.after(reserved.ordered, windows.prompt(UP_S)))
            lab.require(told, within_s=UP_S, after=reserved.ordered)
            after = lab.look(resources_of(node))
            too_much = lab.do(pending_pod(only_on=node, requests={"cpu": f"{left + 1}m"}))
            checks = [lab.wait_for(each) for each in passed_by(too_much, lab.quiet_s)]
            all_of_it = lab.do(pending_pod(only_on=node, requests={"cpu": f"{left}m"}))
            checks.append(lab.wait_for(bound_of(all_of_it)))

    pods = {"pods": has["pods"]}
    for seen, cpu, memory in ((before, 0, BY_DEFAULT), (after, CPU, MEMORY)):
        gives = {"cpu": has["cpu"] - cpu, "memory": has["memory"] - memory, **pods}
        judge("capacity.allocatable-formula", shows(seen, {"capacity": has, "allocatable": gives}))
    for check in checks:
        judge("scheduling.reserve-for-daemons", check)


@claims("scheduling.counts-kubelet-containers", "scheduling.ignores-foreign")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="80")
def test_the_scheduler_counts_what_a_kubelet_runs_and_nothing_else(lab: Stage, judge: Judge) -> None:
    """A static pod that no scheduler has seen, and a container and a process that no kubelet has."""
    node, static = lab.target, mirror_pod(lab.target)
    runs = became("pods", static.name, {"status": {"phase": "Running"}}, static.namespace)
    with_static_pods = kubelet_settings(node, staticPodPath=STATIC_PODS)
    manifest = static_pod(static, {"cpu": f"{STATIC}m"})

    with lab.record(), lab.inject(manifest), lab.inject(with_static_pods) as restart:
        lab.wait_for(runs.after(restart.ordered, windows.prompt(UP_S)))
        lab.require(runs, within_s=UP_S, after=restart.ordered)
        left = lab.look(resources_of(node)).value["allocatable"]["cpu"] - STATIC
        with lab.inject(unit_up(node, FOREIGN_WORK)):
            begun = lab.look(task_of(node, FOREIGN))
            too_much = lab.do(pending_pod(only_on=node, requests={"cpu": f"{left + 1}m"}))
            not_beside = [lab.wait_for(each) for each in passed_by(too_much, lab.quiet_s)]
            beside = lab.wait_for(bound_of(lab.do(pending_pod(only_on=node, requests={"cpu": f"{left}m"}))))
            still = lab.look(task_of(node, FOREIGN))

    for check in (*not_beside, beside):
        judge("scheduling.counts-kubelet-containers", check)
    for check in (shows(begun, RUNNING), beside, shows(still, RUNNING)):
        judge("scheduling.ignores-foreign", check)
