"""A kubelet that has started, but cannot finish its initialization for a while."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import NOT_READY

STARTS_S, REFUSED_S = 30.0, 15.0
"""A kubelet retries 1, 3 and 19 s after its start, but then only 2 minutes later (initializeCSINode in
pkg/volume/csi/csi_plugin.go).
"""


@needs(nodes=2, faulted=1, duration_s="R + 35")
def test_node_takes_no_pods_until_its_kubelet_has_initialized(lab: Lab, claim: Expectations) -> None:
    """Deny the kubelet its new CSINode: without one it does not report its node as Ready."""
    node, initializing = lab.target, claim("kubelet-restart.not-ready-until-initialized")
    not_ready = moments.condition_reported(node, "Ready", "False", "KubeletNotReady", "CSINode")

    with lab.record():
        with lab.inject(faults.deny_updates(node, "csinode")) as denial:
            with lab.inject(faults.unit_down(node)) as stop:
                lab.run(actions.send_request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{node}"))
            initializing.expect(not_ready, within=STARTS_S, after=stop.healing_at)
            no_schedule = node.taint(NOT_READY, "NoSchedule").added
            lab.wait_for(no_schedule.after(not_ready, 5))
            pod = lab.run(actions.pending_pod(only_on=node))
            initializing.expect(pod.unschedulable, within=5, after=pod.created)
            initializing.never(pod.bound, throughout=3.0, after=pod.created)
        lab.require(denial.healing_at, within_s=REFUSED_S, after=stop.healing_at)
        initializing.expect_none(node.ready, after=not_ready, until=denial.healing_at)
        ready = moments.first_after(node.ready, after=denial.healing_at)
        initializing.expect(ready, within=STARTS_S, after=denial.healing_at)
        initializing.expect(pod.bound, within=windows.BIND_S, after=ready)
