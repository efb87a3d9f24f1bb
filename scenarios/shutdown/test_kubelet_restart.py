"""A kubelet that is restarted while its machine prepares to shut down."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Check,
    Pod,
    Stage,
    became,
    bound_pod,
    called_off_shutdown,
    claims,
    condition_became,
    condition_said,
    dbus_property,
    inhibitors,
    kubelet_restarted,
    kubelet_settings,
    needs,
    next_of,
    pod_bound,
    restart_kubelet,
    shows,
    standing,
    windows,
)

TOTAL_S, CRITICAL_S, HOLDS_S = 30, 10, 110
"""What holds the shutdown up is a lock of ours: the kubelet's goes with it."""
SOON_S, UP_S, STARTS_S = 15, 45, 30
LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"


def comes_to(pod: Pod, within_s: float, **status: str) -> Check:
    reached = became("pods", pod.name, {"status": status}, pod.namespace)
    return reached.after(pod_bound(pod.namespace, pod.name), windows.prompt(within_s))


@claims("graceful-shutdown.kubelet-restart-during")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="110")
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_a_kubelet_that_starts_while_its_machine_shuts_down_knows_nothing_of_it(
    lab: Stage, judge: Judge
) -> None:
    """A pod that it refused before it would take afterwards, and its node is Ready."""
    node = lab.target
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", "node is shutting down")
    ready = next_of(condition_became(node, "Ready", "True"), after=kubelet_restarted(node))

    with lab.record(), lab.inject(called_off_shutdown(node, holds_s=HOLDS_S)) as down:
        checks = [lab.wait_for(not_ready.after(down.ordered, windows.prompt(SOON_S)))]
        refused = lab.do(bound_pod(to=node))
        checks.append(lab.wait_for(comes_to(refused, SOON_S, phase="Failed", reason="NodeShutdown")))
        lab.do(restart_kubelet(node))
        checks.append(lab.wait_for(ready.after(kubelet_restarted(node), windows.prompt(UP_S))))
        taken = lab.do(bound_pod(to=node))
        checks.append(lab.wait_for(comes_to(taken, STARTS_S, phase="Running")))
        locks = lab.look(inhibitors(node))
        prepares = lab.look(dbus_property(node, *LOGIN, "PreparingForShutdown"))

    for check in (*checks, shows(locks, {"$not": {"$contains": LOCK}}), shows(prepares, True)):
        judge("graceful-shutdown.kubelet-restart-during", check)
