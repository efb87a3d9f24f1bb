"""A shutdown of a node with mounted volumes: the kubelet unmounts them before it ends critical pods."""

from contextlib import ExitStack

from nodeproof.scenario import Expectations, Lab, actions, faults, needs
from nodeproof.scenario.kubernetes import ATTACHER, Witness, shutdown_periods
from nodeproof.scenario.marks import standing

TOTAL_S, CRITICAL_S = 100, 10
"""Long enough for regular pods' volumes to be unmounted on a slow node. Pods tolerate a node that is not
ready for as long, so nothing else evicts them.
"""
SOON_S, UNMOUNT_S = 15.0, 45.0
"""The kubelet retries unmounting with exponential backoff."""
HOLD = "cd /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount && exec sleep 600"
"""A process whose working directory is in a mount keeps it from being unmounted."""


@needs(
    nodes=2, faulted=1, components=(ATTACHER,), features=("systemd", "real-pods", "volumes"), duration_s="150"
)
@standing(faults.kubelet_settings, **shutdown_periods(TOTAL_S, CRITICAL_S))
def test_critical_pods_run_until_volumes_of_others_are_unmounted(lab: Lab, claim: Expectations) -> None:
    """The regular pod ends at once; a process on the machine keeps its volume mounted for a while."""
    node, storage = lab.target, faults.volumes()
    (pvc,) = storage.pvcs
    waits_for_unmount = claim("graceful-shutdown.waits-for-unmount")
    event, cancellation = node.shutdown_detected, node.shutdown_cancelled

    with lab.record(), lab.inject(storage):
        with_disk = Witness(pvc=pvc, toleration_s=TOTAL_S)
        last = Witness(priority_class="system-node-critical", host_network=True, toleration_s=TOTAL_S)
        regular, critical = lab.run(actions.run_witnesses(with_disk, last, on=node))
        with ExitStack() as mounts:
            holder = mounts.enter_context(lab.inject(faults.unit_up(node, HOLD)))
            with lab.inject(faults.cancelled_shutdown(node)) as fault:
                lab.wait_for(event.after(fault.requested_at, SOON_S))
                waits_for_unmount.never(critical.sigterm, throughout=15.0, after=event)
                mounts.close()
                lab.wait_for(cancellation.after(event, TOTAL_S))
                lab.collect(regular, critical)

    waits_for_unmount.expect_later(regular.last_sign, within=SOON_S, after=event)
    waits_for_unmount.expect_later(critical.sigterm, within=UNMOUNT_S, after=holder.healing_at)
