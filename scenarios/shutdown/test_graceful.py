"""A machine that its own service manager shuts down, under a kubelet that was given time for it."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    INHIBITORS,
    Stage,
    Witness,
    claims,
    condition_became,
    condition_said,
    event_reported,
    grew,
    inhibitors,
    kubelet_settings,
    last_sign,
    listed,
    machine_ended,
    metric,
    needs,
    not_listed,
    pod_marked,
    pre_stop_began,
    pre_stop_ended,
    run_witnesses,
    shutdown,
    sigterm,
    wall_clock,
    windows,
)

REGULAR_S, CRITICAL_S = 60, 30
"""The longest that the two phases may take: no pod here needs as much."""
HOOK_S, GRACE_S = 3, 15
OFF_S = 35
"""How long after its last pod a machine may take to be off: less than half of what would be left."""
STAYS_S = 300
"""The node is NotReady all the while, and no pod is to be evicted for that."""
STARTED, ENDED = (f"kubelet_graceful_shutdown_{which}_time_seconds" for which in ("start", "end"))
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")


@claims(
    "graceful-shutdown.detects",
    "graceful-shutdown.inhibitor-lock",
    "graceful-shutdown.ready-false",
    "graceful-shutdown.pods-marked",
    "graceful-shutdown.normal-termination",
    "graceful-shutdown.two-phases",
    "graceful-shutdown.early-release",
    "shutdown-metrics.survive-reboot",
)
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"))
def test_a_shutdown_ends_regular_pods_and_then_critical_ones(lab: Stage, judge: Judge) -> None:
    node = lab.target
    patient = kubelet_settings(
        node,
        shutdownGracePeriod=f"{REGULAR_S + CRITICAL_S}s",
        shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
    )
    noticed = event_reported("Shutdown", "Node", node, "Shutdown manager detected shutdown event")
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", "node is shutting down")

    with lab.record():
        lab.look(inhibitors(node))
        with lab.inject(patient) as given_time:
            polite, deaf, critical = lab.do(
                run_witnesses(
                    Witness(grace_s=GRACE_S, tolerates_s=STAYS_S, pre_stop_s=HOOK_S),
                    Witness(grace_s=GRACE_S, tolerates_s=STAYS_S, deaf=True),
                    Witness(grace_s=GRACE_S, tolerates_s=STAYS_S, priority_class="system-node-critical"),
                    on=node,
                )
            )
            lab.look(inhibitors(node))
            clock = lab.look(wall_clock(node))
            marked = pod_marked(deaf.namespace, deaf.name, *MARK)
            with lab.inject(shutdown(node)) as down:
                detected = lab.wait_for(noticed.after(down.ordered, windows.prompt(5)))
                reported = lab.wait_for(not_ready.after(down.ordered, windows.prompt(5)))
                told = lab.wait_for(marked.after(down.ordered, windows.prompt(REGULAR_S + CRITICAL_S)))
                lab.wait_for(machine_ended(node).after(down.ordered, windows.prompt(300)))
            lab.hear(polite, deaf, critical)
            lab.wait_for(condition_became(node, "Ready", "True").after(down.healing, windows.recovery()))
            began, ended = (lab.look(metric(node, name)) for name in (STARTED, ENDED))

    judge("graceful-shutdown.inhibitor-lock", not_listed(INHIBITORS, node, LOCK, until=given_time.ordered))
    judge("graceful-shutdown.inhibitor-lock", listed(INHIBITORS, node, LOCK, given_time.began, down.ordered))
    judge("graceful-shutdown.detects", detected)
    for pod in (polite, deaf, critical):
        ends = sigterm(pod.name).after(down.ordered, windows.prompt(REGULAR_S + CRITICAL_S))
        judge("graceful-shutdown.detects", ends)
    judge("graceful-shutdown.ready-false", reported)
    judge("graceful-shutdown.pods-marked", told)
    hooked, unhooked = pre_stop_began(polite.name), pre_stop_ended(polite.name)
    judge("graceful-shutdown.normal-termination", hooked.after(down.ordered, windows.prompt(REGULAR_S)))
    judge("graceful-shutdown.normal-termination", unhooked.after(hooked, windows.prompt(GRACE_S)))
    judge(
        "graceful-shutdown.normal-termination",
        sigterm(polite.name).after(unhooked, windows.afterwards(GRACE_S)),
    )
    killed = last_sign(deaf.name).after(sigterm(deaf.name), windows.grace_period(GRACE_S))
    judge("graceful-shutdown.normal-termination", killed)
    for pod in (polite, deaf):
        phases = sigterm(critical.name).after(last_sign(pod.name), windows.afterwards(REGULAR_S))
        judge("graceful-shutdown.two-phases", phases)
    early = machine_ended(node).after(last_sign(critical.name), windows.prompt(OFF_S))
    judge("graceful-shutdown.early-release", early)
    judge("shutdown-metrics.survive-reboot", grew(clock, began, -1, 20))
    judge("shutdown-metrics.survive-reboot", grew(began, ended, HOOK_S, REGULAR_S + CRITICAL_S))
