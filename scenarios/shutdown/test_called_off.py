"""A shutdown that is called off: pods end as in any other, and the machine stays to tell."""

from collections.abc import Mapping, Sequence

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    STATUS,
    Check,
    Cut,
    Moment,
    Pod,
    Stage,
    Witness,
    became,
    bound_pod,
    called_off_shutdown,
    changed,
    claims,
    condition_became,
    condition_said,
    counted,
    event_reported,
    grew,
    kubelet_field,
    kubelet_settings,
    last_sign,
    metric,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_gone,
    pod_marked,
    pod_unschedulable,
    priority_class,
    run_witnesses,
    shown_throughout,
    shows,
    sigterm,
    standing,
    taint_added,
    wall_clock,
    windows,
)

TOTAL_S, CRITICAL_S, OWN_S = 30, 10, 5
REGULAR_S = TOTAL_S - CRITICAL_S
PATIENT_S = 300
"""What pods would take for their end, and how long they bear a node that is not ready."""
HIGHEST_OF_USERS = 1_000_000_000
SOON_S, LATER_S, QUIET_S = 15, 90, 10
"""What comes soon, comes before the next phase."""
FIRST_PHASE, BOTH_PHASES = (
    windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + slack")
    for seconds in (REGULAR_S, TOTAL_S)
)
"""From the event, which is made up to some time before it arrives; a runtime under way is slow to signal."""
STARTED, ENDED = (f"kubelet_graceful_shutdown_{which}_time_seconds" for which in ("start", "end"))
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
SHOWN = "Error"
"""What kubectl prints of a container that was killed, whatever the pod's own reason."""
NO_SCHEDULE = {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}
Checks = Mapping[str, Sequence[Check]]


def marked(pod: Pod) -> Moment:
    return pod_marked(pod.namespace, pod.name, *MARK)


def runs(pod: Pod) -> Moment:
    return became("pods", pod.name, {"status": {"phase": "Running"}}, pod.namespace)


def rejected(pod: Pod) -> Check:
    refusal = {"status": {"phase": "Failed", "reason": "NodeShutdown"}}
    is_its = pod_bound(pod.namespace, pod.name)
    return became("pods", pod.name, refusal, pod.namespace).after(is_its, windows.prompt(SOON_S))


def notice(node: str, what: str) -> Moment:
    return event_reported("Shutdown", "Node", node, f"Shutdown manager detected shutdown {what}")


def not_ready(node: str) -> Moment:
    return condition_said(node, "Ready", "False", "KubeletNotReady", "node is shutting down")


def about_the_phases(down: Cut, deaf: Pod, short: Pod, critical: Pod) -> Checks:
    node = down.fault.node
    begins = notice(node, "event")
    begun = begins.after(down.ordered, windows.prompt(SOON_S))
    told = sigterm(deaf.name).after(begins, windows.prompt(SOON_S))
    with_it = sigterm(short.name).after(begins, windows.prompt(SOON_S))
    then = sigterm(critical.name).after(begins, FIRST_PHASE)
    ends = {
        pod.name: last_sign(pod.name).after(sigterm(pod.name), windows.grace_period(seconds))
        for pod, seconds in ((deaf, REGULAR_S), (short, OWN_S), (critical, CRITICAL_S))
    }
    released = notice(node, "cancellation").after(begins, BOTH_PHASES)
    return {
        "graceful-shutdown.example-30-10": [
            begun,
            told,
            ends[deaf.name],
            then,
            ends[critical.name],
            released,
        ],
        "graceful-shutdown.pod-grace-is-minimum": [begun, with_it, ends[short.name], ends[deaf.name]],
        "graceful-shutdown.critical-definition": [begun, told, with_it, then],
        "priority-shutdown.no-config": [begun, told, with_it, then],
    }


def about_new_pods(down: Cut, waiting: Pod, tolerant: Pod, direct: Pod) -> Checks:
    node, asked = down.fault.node, pod_created(waiting.namespace, waiting.name)
    bound = pod_bound(waiting.namespace, waiting.name)
    over = notice(node, "cancellation")
    return {
        "graceful-shutdown.scheduler-stops": [
            taint_added(node, NOT_READY, "NoSchedule").after(not_ready(node), windows.prompt(5)),
            pod_unschedulable(waiting.namespace, waiting.name).after(asked, windows.prompt(5)),
            bound.never_after(asked, windows.absence(QUIET_S)),
            bound.after(over, windows.prompt(SOON_S + windows.BIND_S)),
        ],
        "graceful-shutdown.admission-rejects": [rejected(direct)],
        "graceful-shutdown.admission-rejects-tolerating": [rejected(tolerant)],
    }


def about_the_cancellation(down: Cut, *pods: Pod) -> Checks:
    node, deaf = down.fault.node, pods[0]
    begins, ends = notice(node, "event"), notice(node, "cancellation")
    reported = not_ready(node).after(down.ordered, windows.prompt(SOON_S))
    again = condition_became(node, "Ready", "True").after(ends, windows.prompt(SOON_S))
    marks = [marked(pod).after(down.ordered, windows.prompt(LATER_S)) for pod in pods]
    quiet = windows.absence(QUIET_S)
    return {
        "graceful-shutdown.event": [
            begins.after(down.ordered, windows.prompt(SOON_S)),
            ends.after(begins, BOTH_PHASES),
            *(counted(each, 1, 1, after=down.ordered, until=down.healing) for each in (begins, ends)),
        ],
        "graceful-shutdown.cancelled-ready": [reported, ends.after(begins, BOTH_PHASES), again],
        "graceful-shutdown.cancelled-pods-lost": [
            *marks,
            *(runs(pod).never_after(marked(pod), quiet) for pod in pods),
        ],
        "graceful-shutdown.failed-pods-kept": [
            *marks,
            *(pod_gone(pod.namespace, pod.name).never_after(marked(pod), quiet) for pod in pods),
        ],
        "graceful-shutdown.kubectl-get": [
            marks[0],
            shown_throughout(STATUS, deaf.name, SHOWN, marked(deaf), down.healing),
        ],
    }


def wait(lab: Stage, *checks: Check) -> None:
    for check in checks:
        lab.wait_for(check)


def wait_until_it_is_over(lab: Stage, after: Checks) -> None:
    """Longer than what must not come is judged for: what the scenario does next ends pods."""
    wait(lab, *after["graceful-shutdown.event"][:2], after["graceful-shutdown.cancelled-ready"][-1])
    wait(lab, *after["graceful-shutdown.cancelled-pods-lost"], *after["graceful-shutdown.failed-pods-kept"])


@claims(
    *(f"graceful-shutdown.{name}" for name in ("example-30-10", "pod-grace-is-minimum", "event")),
    *(f"graceful-shutdown.{name}" for name in ("critical-definition", "scheduler-stops", "kubectl-get")),
    *(f"graceful-shutdown.{name}" for name in ("admission-rejects", "admission-rejects-tolerating")),
    *(f"graceful-shutdown.{name}" for name in ("cancelled-ready", "cancelled-pods-lost")),
    *("graceful-shutdown.failed-pods-kept", "priority-shutdown.no-config"),
    *("shutdown-metrics.exist", "shutdown-metrics.values", "heartbeat.continues-in-shutdown"),
)
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="120")
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_a_shutdown_that_is_called_off_has_ended_the_pods_all_the_same(lab: Stage, judge: Judge) -> None:
    """All pods are deaf to SIGTERM: so each of them tells when it was told, and when it was killed."""
    node, high = lab.target, priority_class(HIGHEST_OF_USERS)
    lab.do(high.make)
    pods = lab.do(
        run_witnesses(
            *(
                Witness(seconds, deaf=True, priority_class=name, tolerates_s=PATIENT_S, host_network=True)
                for seconds, name in (
                    (PATIENT_S, ""),
                    (OWN_S, high.name),
                    (PATIENT_S, "system-cluster-critical"),
                )
            ),
            on=node,
        )
    )
    renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")

    with lab.record(status_of=pods[0]):
        by_priority = lab.look(kubelet_field(node, "shutdownGracePeriodByPodPriority"))
        exported = [lab.look(metric(node, name)) for name in (STARTED, ENDED)]
        clock = lab.look(wall_clock(node))
        with lab.inject(called_off_shutdown(node)) as down:
            after = about_the_cancellation(down, *pods)
            wait(lab, after["graceful-shutdown.event"][0], after["graceful-shutdown.cancelled-ready"][0])
            lab.wait_for(taint_added(node, NOT_READY, "NoSchedule").after(not_ready(node), windows.prompt(5)))
            waiting = lab.do(pending_pod(only_on=node))
            tolerant = lab.do(pending_pod(only_on=node, tolerations=[NO_SCHEDULE]))
            direct = lab.do(bound_pod(to=node))
            new = about_new_pods(down, waiting, tolerant, direct)
            wait(lab, *new["graceful-shutdown.scheduler-stops"][1:3])
            wait(lab, *new["graceful-shutdown.admission-rejects"])
            wait(lab, *new["graceful-shutdown.admission-rejects-tolerating"])
            wait_until_it_is_over(lab, after)
            wait(lab, *new["graceful-shutdown.scheduler-stops"][3:])
            began, ended = (lab.look(metric(node, name)) for name in (STARTED, ENDED))
            lab.hear(*pods)

    for checks in (about_the_phases(down, *pods), new, after):
        for claim, several in checks.items():
            for check in several:
                judge(claim, check)
    judge("priority-shutdown.no-config", shows(by_priority, {"$in": [None]}))
    for seen in exported:
        judge("shutdown-metrics.exist", shows(seen, {"$not": None}))
    judge("shutdown-metrics.values", grew(clock, began, -1, 20))
    judge("shutdown-metrics.values", grew(began, ended, TOTAL_S - 4, 1.4 * TOTAL_S))
    most, least = TOTAL_S / lab.configuration["R"], 0.6 * TOTAL_S / lab.configuration["R"]
    begins, ends = (notice(node, what) for what in ("event", "cancellation"))
    renewals = counted(renewed, int(least), int(1.4 * most), after=begins, until=ends)
    judge("heartbeat.continues-in-shutdown", begins.after(down.ordered, windows.prompt(SOON_S)))
    judge("heartbeat.continues-in-shutdown", renewals)
