"""A shutdown of a node with mounted volumes: the kubelet unmounts them before it ends critical pods."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import ATTACHER, Witness, shutdown_periods
from nodeproof.scenario.marks import standing
from nodeproof.scenario.sources import VolumeCalls

TOTAL_S, CRITICAL_S = 100, 10
"""Long enough for regular pods' volumes to be unmounted on a slow node. Pods tolerate a node that is not
ready for as long, so nothing else evicts them.
"""
SOON_S, UNMOUNT_S = 15.0, 45.0
SLOW_UNMOUNT = r"""
umount=/usr/local/bin/umount file=/var/tmp/nodeproof-umount
printf '#!/bin/sh\ncase "$*" in *kubernetes.io~csi*) sleep 10 ;; esac\nexec /usr/bin/umount "$@"\n' >$file
chmod +x $file && exec 3<$file && rm $file && ln -s /proc/$$/fd/3 $umount || exit 1
trap 'rm $umount; exit' TERM
systemd-notify --ready
sleep infinity & wait
"""
"""Volumes of pods take 10 s to unmount. If the script is killed, the link leads nowhere, and shells find the
other umount. A volume in use would not do: the kubelet stops waiting when an attempt fails
(docs/findings/failed-unmount-ends-wait.md).
"""


@needs(
    nodes=2, faulted=1, components=(ATTACHER,), features=("systemd", "real-pods", "volumes"), duration_s="150"
)
@standing(faults.kubelet_settings, **shutdown_periods(TOTAL_S, CRITICAL_S))
def test_critical_pods_run_until_volumes_of_others_are_unmounted(lab: Lab, claim: Expectations) -> None:
    """The regular pod ends at once; its volume is unmounted 10 s later."""
    node, storage = lab.target, faults.volumes()
    (pvc,) = storage.pvcs
    unpublish = VolumeCalls(pvc, "NodeUnpublishVolume")
    waits_for_unmount = claim("graceful-shutdown.waits-for-unmount")
    event = node.shutdown_detected

    with lab.record(), lab.inject(storage):
        with_disk = Witness(pvc=pvc, toleration_s=TOTAL_S)
        last = Witness(priority_class="system-node-critical", host_network=True, toleration_s=TOTAL_S)
        regular, critical = lab.run(actions.run_witnesses(with_disk, last, on=node))
        slow_unmount, shutdown = faults.unit_up(node, SLOW_UNMOUNT), faults.cancelled_shutdown(node)
        with lab.inject(slow_unmount), lab.inject(shutdown) as fault:
            lab.wait_for(event.after(fault.requested_at, SOON_S))
            lab.wait_for(critical.ended_by_shutdown.after(event, TOTAL_S))
            lab.collect(regular, critical, unpublish)

    waits_for_unmount.expect_later(regular.last_sign, within=SOON_S, after=event)
    unmounted = moments.first_after(unpublish.call, after=regular.last_sign)
    waits_for_unmount.expect_later(critical.sigterm, within=windows.afterwards(UNMOUNT_S), after=unmounted)
