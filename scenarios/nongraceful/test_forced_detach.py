"""Forced detach of volumes of a node that lost its power, and the flag that disables it.

Attach/detach controller, external-attacher and the kubelets' volume managers are upstream's. The disks are
files of a table, and kubelets mount folders.
"""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import ATTACHER, OUT_OF_SERVICE, Node, Pod, unique, using_pvc
from nodeproof.scenario.types import Observation

MANAGER, ATTACHMENTS = "kube-controller-manager", "volumeattachments"
NODES, CSI_NODES = "/api/v1/nodes", "/apis/storage.k8s.io/v1/csinodes"
SIX_MINUTES = windows.formula("period", "360", "360 - slack", "360 + 1 + slack")
"""ReconcilerMaxWaitForUnmountDuration and two loops of the reconciler, which runs every 100 ms
(pkg/controller/volume/attachdetach/attach_detach_controller.go).
"""
LONGER = windows.absence_including_anchor(380.0)
CONTAINER_START_S, AT_ONCE_S = 60.0, 5.0


@needs(
    nodes=2, faulted=1, components=(ATTACHER,), features=("power", "volumes"), profile="documented",
    duration_s="475",
)  # fmt: skip
def test_volume_of_dead_node_is_force_detached_after_6_min(lab: Lab, claim: Expectations) -> None:
    """Its pod was deleted by force; a pod on another node waits for the volume and gets it then.

    A healthy node keeps the volume of a deleted pod until it no longer uses it.
    """
    node, other, storage = lab.target, lab.others[0], faults.volumes(2)
    volume, used_volume = storage.pvcs
    old, new = faults.attachment(volume, node), faults.attachment(volume, other)
    counter, creation = probes.forced_detaches("timeout"), moments.created(ATTACHMENTS, new)
    timeout = claim("non-graceful.force-detach-timeout")

    with lab.record(extra_resources=(ATTACHMENTS,)), lab.inject(storage):
        healthy, deleted = hold_volume(lab, used_volume, other)
        used, unuse = faults.attachment(used_volume, healthy), set_volumes_in_use(healthy, None)
        pod = start_pod(lab, node, volume)
        before = lab.observe(counter)
        with lab.inject(faults.power_off(node)) as fault:
            force_delete(lab, pod)
            waiting = lab.run(actions.pending_pod(only_on=other, **using_pvc(volume)))
            timeout.expect(moments.detaching(old), within=SIX_MINUTES, after=pod.removal)
            timeout.expect(moments.detached(old), within=AT_ONCE_S, after=moments.detaching(old))
            timeout.expect(creation, within=AT_ONCE_S, after=moments.detached(old))
            timeout.expect(waiting.running, within=CONTAINER_START_S, after=creation)
            timeout.expect_later(checks.grew(before, lab.observe(counter), 1, 1))
            timeout.never(moments.detaching(used), throughout=LONGER, after=deleted.removal)
            lab.run(unuse)
            timeout.expect(moments.detaching(used), within=AT_ONCE_S, after=unuse.begun)
            lab.wait_for(moments.detached(used).after(moments.detaching(used), AT_ONCE_S))
        lab.wait_until_ready(node, fault)
        delete = actions.send_request("DELETE", waiting.path)
        lab.run(delete)
        lab.wait_for(moments.detached(new).after(delete.begun, 60.0))


# Two zones give it a lab of its own beside the other scenario, which waits as long.
@needs(
    nodes=4, zones=2, faulted=1, components=(ATTACHER, MANAGER), features=("power", "volumes"),
    profile="documented", duration_s="480",
)  # fmt: skip
def test_volume_stays_attached_if_force_detach_is_disabled(lab: Lab, claim: Expectations) -> None:
    """The volume stays attached until the node is tainted as out of service."""
    node, storage, disable = lab.target, faults.volumes(), claim("non-graceful.force-detach-disable")
    (volume,) = storage.pvcs
    disk, out_of_service = faults.attachment(volume, node), node.taint(OUT_OF_SERVICE).added

    with (
        lab.record(extra_resources=(ATTACHMENTS,)),
        lab.inject(faults.settings(MANAGER, disable_force_detach_on_timeout="true")),
        lab.inject(storage),
    ):
        pod = start_pod(lab, node, volume)
        with lab.inject(faults.power_off(node)) as fault:
            force_delete(lab, pod)
            disable.never(moments.detaching(disk), throughout=LONGER, after=pod.removal)
            with lab.inject(faults.taint(node, OUT_OF_SERVICE, "NoExecute")):
                disable.expect(moments.detaching(disk), within=AT_ONCE_S, after=out_of_service)
                lab.wait_for(moments.detached(disk).after(moments.detaching(disk), AT_ONCE_S))
                disable.expect_value(lab.observe(probes.forced_detaches("timeout")), {"$in": [None, 0]})
                disable.expect_value(lab.observe(probes.forced_detaches("out-of-service")), 1)
        lab.wait_until_ready(node, fault)


def hold_volume(lab: Lab, volume: str, machine: Node) -> tuple[Node, Pod]:
    """Attach a volume to a healthy Node without a kubelet that uses it, and delete its pod by force.

    A kubelet would unmount the volume. The driver attaches it to a machine that exists.
    """
    node = Node(unique("by-hand"))
    pod = Pod("nodeproof", unique("deleted"), node)
    metadata = {
        "name": node,
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
    }
    spec = {"drivers": [{"name": faults.CSI_DRIVER, "nodeID": machine}]}
    lab.run(actions.send_request("POST", CSI_NODES, {"metadata": {"name": node}, "spec": spec}))
    lab.run(actions.send_request("POST", NODES, {"metadata": metadata}))
    lab.run(actions.keep_alive(node))
    # The controller must know the Node before its pod.
    lab.wait_for(node.ready.after(node.created, AT_ONCE_S))
    lab.run(set_volumes_in_use(node, [faults.unique_volume_name(volume)]))
    lab.run(actions.create_pod(pod, **using_pvc(volume)))
    attached = moments.attached(faults.attachment(volume, node))
    lab.wait_for_required(attached, within_s=CONTAINER_START_S, after=pod.created)
    lab.run(actions.send_request("DELETE", pod.path, {"gracePeriodSeconds": 0}))
    lab.wait_for(pod.removal.after(attached, CONTAINER_START_S))
    return node, pod


def set_volumes_in_use(node: Node, volumes: Sequence[str] | None) -> actions.Action[Observation]:
    """Report the volumes that a Node uses, as its kubelet would."""
    return actions.send_request("PATCH", f"{NODES}/{node}/status", {"status": {"volumesInUse": volumes}})


def start_pod(lab: Lab, node: str, volume: str) -> Pod:
    """Start a pod with a volume and wait until it runs on the attached volume."""
    pod = lab.run(actions.pending_pod(only_on=node, **using_pvc(volume)))
    attached = moments.attached(faults.attachment(volume, node))
    lab.wait_for_required(pod.running, within_s=CONTAINER_START_S, after=attached)
    return pod


def force_delete(lab: Lab, pod: Pod) -> None:
    """Delete a pod by force, as for a machine that is known to be off."""
    lab.run(actions.send_request("DELETE", pod.path, {"gracePeriodSeconds": 0}))
    lab.wait_for(pod.removal.after(pod.running, CONTAINER_START_S))
