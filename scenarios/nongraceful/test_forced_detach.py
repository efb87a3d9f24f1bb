"""Forced detach of volumes of a node that lost its power, and the flag that disables it.

Attach/detach controller, external-attacher and the kubelets' volume managers are upstream's. The disks are
files of a table, and kubelets mount folders.
"""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import ATTACHER, Pod, using_pvc

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
PODS = "/api/v1/namespaces/nodeproof/pods"
FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches"
SIX_MINUTES = windows.formula("period", "360", "360 - slack", "360 + 1 + slack")
"""ReconcilerMaxWaitForUnmountDuration and two loops of the reconciler, which runs every 100 ms
(pkg/controller/volume/attachdetach/attach_detach_controller.go).
"""
LONGER_S = 380.0
CONTAINER_START_S, AT_ONCE_S, DETACH_S = 60.0, 5.0, 60.0


@needs(
    nodes=2,
    faulted=1,
    components=(ATTACHER,),
    features=("power", "volumes"),
    profile="documented",
    duration_s="460",
)
def test_volume_of_dead_node_is_force_detached_after_6_min(lab: Lab, claim: Expectations) -> None:
    """Its pod was deleted by force; a pod on another node waits for the volume and gets it then."""
    node, other, storage = lab.target, lab.others[0], faults.volumes()
    (volume,) = storage.pvcs
    old, new = faults.attachment(volume, node), faults.attachment(volume, other)
    counter = probes.metric(MANAGER, FORCED, reason="timeout")
    timeout = claim("non-graceful.force-detach-timeout")
    at_once, creation = windows.up_to(AT_ONCE_S), moments.created(ATTACHMENTS, new)

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        pod = start_pod(lab, node, volume)
        before = lab.observe(counter)
        with lab.inject(faults.power_off(node)) as fault:
            force_delete(lab, pod)
            waiting = lab.run(actions.pending_pod(only_on=other, **using_pvc(volume)))
            timeout.expect(moments.detaching(old), within=SIX_MINUTES, after=pod.removal)
            timeout.expect(moments.detached(old), within=at_once, after=moments.detaching(old))
            timeout.expect(creation, within=at_once, after=moments.detached(old))
            timeout.expect(waiting.running, within=CONTAINER_START_S, after=creation)
            timeout.expect_later(checks.grew(before, lab.observe(counter), 1, 1))
        lab.wait_until_ready(node, fault)
        delete_and_detach(lab, waiting, new)


# Two zones give it a lab of its own beside the other scenario, which waits as long.
@needs(
    nodes=4, zones=2, faulted=1, components=(ATTACHER, MANAGER), features=("power", "volumes"),
    profile="documented", duration_s="480",
)  # fmt: skip
def test_volume_stays_attached_if_force_detach_is_disabled(lab: Lab, claim: Expectations) -> None:
    """The volume stays attached until the node is tainted as out of service."""
    node, storage, at_once = lab.target, faults.volumes(), windows.up_to(AT_ONCE_S)
    (volume,) = storage.pvcs
    disk, disable = faults.attachment(volume, node), claim("non-graceful.force-detach-disable")

    with (
        lab.record(extra_resources=(ATTACHMENTS,)),
        lab.inject(faults.settings(MANAGER, disable_force_detach_on_timeout="true")),
        lab.inject(storage),
    ):
        pod = start_pod(lab, node, volume)
        with lab.inject(faults.power_off(node)) as fault:
            force_delete(lab, pod)
            longer = windows.absence_including_anchor(LONGER_S)
            disable.never(moments.detaching(disk), throughout=longer, after=pod.removal)
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute")):
                out_of_service = node.taint(OUT_OF_SERVICE).added
                disable.expect(moments.detaching(disk), within=at_once, after=out_of_service)
                lab.wait_for(moments.detached(disk).after(moments.detaching(disk), at_once))
                for reason, count in (("timeout", {"$in": [None, 0]}), ("out-of-service", 1)):
                    counter = lab.observe(probes.metric(MANAGER, FORCED, reason=reason))
                    disable.expect_value(counter, count)
        lab.wait_until_ready(node, fault)


def start_pod(lab: Lab, node: str, volume: str) -> Pod:
    """Start a pod with a volume and wait until it runs on the attached volume."""
    pod = lab.run(actions.pending_pod(only_on=node, **using_pvc(volume)))
    attached = moments.became(ATTACHMENTS, faults.attachment(volume, node), {"status": {"attached": True}})
    lab.wait_for(pod.running.after(attached, CONTAINER_START_S))
    lab.require(pod.running, within_s=CONTAINER_START_S, after=attached)
    return pod


def force_delete(lab: Lab, pod: Pod) -> None:
    """Delete a pod by force, as for a machine that is known to be off."""
    lab.run(actions.send_request("DELETE", f"{PODS}/{pod.name}", {"gracePeriodSeconds": 0}))
    lab.wait_for(pod.removal.after(pod.running, CONTAINER_START_S))


def delete_and_detach(lab: Lab, pod: Pod, disk: str) -> None:
    """Delete a pod of a healthy node and wait until its volume is detached."""
    delete = actions.send_request("DELETE", f"{PODS}/{pod.name}")
    lab.run(delete)
    lab.wait_for(moments.detached(disk).after(delete.begun, DETACH_S))
