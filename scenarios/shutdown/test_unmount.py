"""A shutdown of a node whose pods have volumes: what the kubelet waits for before it ends critical pods."""

from contextlib import ExitStack

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    ATTACHER,
    Stage,
    Witness,
    called_off_shutdown,
    claims,
    condition_became,
    event_reported,
    kubelet_settings,
    last_sign,
    needs,
    run_witnesses,
    sigterm,
    standing,
    unit_up,
    volumes,
    windows,
)

TOTAL_S, CRITICAL_S = 100, 10
"""So that the regular pods' time is not over before their volumes are let go, however slow the node is. Pods
bear a node that is not ready for as long: nobody else asks them to leave.
"""
HELD_S, SOON_S, LET_GO_S = 15.0, 15.0, 45.0
"""The kubelet tries to unmount again after twice as long each time."""
HOLD = "cd /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount && exec sleep 600"
"""Who is in a folder keeps others from unmounting it."""


@claims("graceful-shutdown.waits-for-unmount")
@needs(
    nodes=2,
    faulted=1,
    components=(ATTACHER,),
    features=("systemd", "real-pods", "volumes"),
    lasts="150",
)
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_critical_pods_of_a_shutdown_run_until_the_others_volumes_are_unmounted(
    lab: Stage, judge: Judge
) -> None:
    """The regular pod ends at once, and somebody on the machine keeps its volume mounted a while longer."""
    node, storage = lab.target, volumes()
    (claim,) = storage.claims

    with lab.record(), lab.inject(storage):
        regular, critical = lab.do(
            run_witnesses(
                Witness(claim=claim, tolerates_s=TOTAL_S),
                Witness(priority_class="system-node-critical", host_network=True, tolerates_s=TOTAL_S),
                on=node,
            )
        )
        with ExitStack() as held:
            holder = held.enter_context(lab.inject(unit_up(node, HOLD)))
            with lab.inject(called_off_shutdown(node)) as down:
                begins = event_reported("Shutdown", "Node", node, "Shutdown manager detected shutdown event")
                lab.wait_for(begins.after(down.ordered, windows.prompt(SOON_S)))
                lost = condition_became(node, "Ready", "Unknown")
                lab.wait_for(lost.never_after(begins, windows.absence(HELD_S)))
                held.close()
                over = event_reported(
                    "Shutdown", "Node", node, "Shutdown manager detected shutdown cancellation"
                )
                lab.wait_for(over.after(begins, windows.prompt(TOTAL_S)))
                lab.hear(regular, critical)

    ended = last_sign(regular.name).after(begins, windows.prompt(SOON_S))
    waits = sigterm(critical.name).never_after(begins, windows.absence(HELD_S))
    goes = sigterm(critical.name).after(holder.healing, windows.prompt(LET_GO_S))
    for check in (ended, waits, goes):
        judge("graceful-shutdown.waits-for-unmount", check)
