"""Shutdowns that no kubelet is told of: it asked logind for no time, or for more than that gives."""

from collections.abc import Sequence

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Check,
    Cut,
    Pod,
    Stage,
    Witness,
    called_off_shutdown,
    claims,
    condition_became,
    counted,
    dbus_property,
    event_reported,
    file_of,
    inhibitors,
    kubelet_field,
    kubelet_settings,
    lives_on,
    needs,
    other_file,
    run_witnesses,
    shows,
    sigterm,
    windows,
)

LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
HELD, FREE = {"$contains": LOCK}, {"$not": {"$contains": LOCK}}
QUIET_S, PATIENT_S = 20, 300
"""Longer than a kubelet that is told takes to say so, and than it takes to tell life from silence."""
DROP_INS = "/etc/systemd/logind.conf.d"
KUBELETS, LATER = f"{DROP_INS}/99-kubelet.conf", f"{DROP_INS}/nodeproof.conf"
"""Of the same setting, what is read last counts: the second is the image's own, of 120 s."""
NOTHING, KEPT_S, RAISED_S, IN_VAIN_S = "[Login]\n", 120, 180, 240
PERIODS = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")


def witness_on(lab: Stage, node: str) -> Pod:
    """A pod that this kubelet starts: by then it has its lock, or has found that it gets none."""
    (pod,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
    return pod


def nothing_happens(lab: Stage, down: Cut, pod: Pod) -> Sequence[Check]:
    """What a kubelet does not do that is not told; the pod is to be heard before this is judged."""
    node = down.fault.node
    noticed = event_reported("Shutdown", "Node", node, "Shutdown manager detected shutdown event")
    quiet = windows.absence(QUIET_S)
    never = [
        lab.wait_for(moment.never_after(down.ordered, quiet))
        for moment in (noticed, condition_became(node, "Ready", "False"))
    ]
    ends = counted(sigterm(pod.name), 0, 0, after=down.ordered, until=down.healing)
    return [*never, ends, lives_on(pod.name, down.ordered, down.healing)]


@claims("graceful-shutdown.off-by-default")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="70")
def test_a_kubelet_that_nobody_gave_time_is_told_of_no_shutdown(lab: Stage, judge: Judge) -> None:
    """Nor does it hold one up: as soon as logind is asked, it goes on, and is refused its last step."""
    node = lab.target

    with lab.record():
        pod = witness_on(lab, node)
        periods = [lab.look(kubelet_field(node, name)) for name in PERIODS]
        locks = lab.look(inhibitors(node))
        with lab.inject(called_off_shutdown(node)) as down:
            checks = nothing_happens(lab, down, pod)
            prepares = lab.look(dbus_property(node, *LOGIN, "PreparingForShutdown"))
        lab.hear(pod)

    for check in (*(shows(seen, "0s") for seen in periods), shows(locks, FREE), shows(prepares, False)):
        judge("graceful-shutdown.off-by-default", check)
    for check in checks:
        judge("graceful-shutdown.off-by-default", check)


@claims("graceful-shutdown.inhibit-delay-override", "graceful-shutdown.inhibit-delay-conflict")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="150")
def test_a_kubelet_raises_the_delay_of_logind_unless_a_later_drop_in_lowers_it(
    lab: Stage, judge: Judge
) -> None:
    """The later one is emptied at first. What the kubelet wrote stays when it asks for no time any more."""
    node = lab.target
    delay = dbus_property(node, *LOGIN, "InhibitDelayMaxUSec")
    more, most = (
        kubelet_settings(node, shutdownGracePeriod=f"{long_s}s") for long_s in (RAISED_S, IN_VAIN_S)
    )

    with lab.record():
        before = lab.look(delay)
        lab.expect(
            before.value < RAISED_S * 10**6,
            f"one whose logind gives less than {RAISED_S} s",
            "restart logind",
        )
        with lab.inject(other_file(node, LATER, NOTHING)), lab.inject(more):
            witness_on(lab, node)
            raised = [lab.look(probe) for probe in (delay, file_of(node, KUBELETS), inhibitors(node))]
        with lab.inject(most):
            pod = witness_on(lab, node)
            kept = [lab.look(probe) for probe in (delay, file_of(node, KUBELETS), inhibitors(node))]
            with lab.inject(called_off_shutdown(node)) as down:
                checks = nothing_happens(lab, down, pod)
            lab.hear(pod)

    for claim, looks, gives_s, asks_s, locks in (
        ("graceful-shutdown.inhibit-delay-override", raised, RAISED_S, RAISED_S, HELD),
        ("graceful-shutdown.inhibit-delay-conflict", kept, KEPT_S, IN_VAIN_S, FREE),
    ):
        patterns = (gives_s * 10**6, {"$contains": f"InhibitDelayMaxSec={asks_s}"}, locks)
        for seen, pattern in zip(looks, patterns, strict=True):
            judge(claim, shows(seen, pattern))
    for check in checks:
        judge("graceful-shutdown.inhibit-delay-conflict", check)
