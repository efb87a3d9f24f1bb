"""A kubelet with time for regular pods only, on a node that nobody reaches."""

from contextlib import ExitStack

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    INHIBITORS,
    Stage,
    Witness,
    called_off_shutdown,
    claims,
    condition_said,
    inhibitors,
    kubelet_settings,
    last_sign,
    listed,
    needs,
    partition,
    pod_marked,
    recording_began,
    run_witnesses,
    sigterm,
    standing,
    windows,
)

REGULAR_S, PATIENT_S, SOON_S = 8, 300, 15
AT_LEAST_S = 2
"""No container is killed sooner after its SIGTERM (minimumGracePeriodInSeconds in
pkg/kubelet/kuberuntime/kuberuntime_manager.go).
"""
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
LATEST_S = 1.5 * REGULAR_S + 2


@claims("graceful-shutdown.activation", "graceful-shutdown.termination-starts-with-condition")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="90")
@standing(kubelet_settings, shutdownGracePeriod=f"{REGULAR_S}s")
def test_a_node_that_is_cut_off_ends_its_pods_without_having_told(lab: Stage, judge: Judge) -> None:
    node = lab.target
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", "node is shutting down")

    with lab.record(), ExitStack() as over:
        regular, critical = lab.do(
            run_witnesses(
                *(
                    Witness(
                        PATIENT_S, deaf=True, priority_class=name, tolerates_s=PATIENT_S, host_network=True
                    )
                    for name in ("", "system-node-critical")
                ),
                on=node,
            )
        )
        lab.look(inhibitors(node))
        # Whether the shutdown is undone is seen by the node's network, which has to be back before.
        with lab.inject(partition(node)) as cut:
            down = over.enter_context(lab.inject(called_off_shutdown(node)))
            unheard = lab.wait_for(not_ready.never_after(down.ordered, windows.absence(2 * REGULAR_S)))
        marks = pod_marked(regular.namespace, regular.name, *MARK).after(cut.healing, windows.recovery())
        lab.wait_for(marks)
        lab.hear(regular, critical)

    begins = sigterm(regular.name).after(down.ordered, windows.prompt(SOON_S))
    for check in (begins, unheard):
        judge("graceful-shutdown.termination-starts-with-condition", check)
    for check in (
        listed(INHIBITORS, node, LOCK, recording_began(), down.ordered),
        begins,
        last_sign(regular.name).after(sigterm(regular.name), windows.grace_period(REGULAR_S)),
        # From the order: how long a SIGTERM is on its way differs by seconds.
        sigterm(critical.name).never_after(down.ordered, windows.absence(REGULAR_S)),
        sigterm(critical.name).after(sigterm(regular.name), windows.prompt(LATEST_S)),
        last_sign(critical.name).after(sigterm(critical.name), windows.prompt(2 * AT_LEAST_S)),
    ):
        judge("graceful-shutdown.activation", check)
