"""Nodes whose container runtime has no pod network."""

from contextlib import ExitStack

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import NOT_READY, Witness

PLUGINS, NONE = "/etc/cni/net.d/10-nodeproof.conflist", "{}\n"
UPDATE_S, JITTER = 8, 1.04
"""The kubelet asks its runtime every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go) and compares its status
every U; U differs after a restart. 3 s are for an emulated machine, from the request to the file.
"""
FAST_UPDATE_S, SELDOM_S = 8, 100
"""A kubelet that has just started checks every 100 ms until it is ready, for at most two minutes
(fastStatusUpdateOnce in pkg/kubelet/kubelet.go); after that, at every status update.
"""
SOON_S = 15


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="90")
def test_node_is_not_ready_until_its_pod_network_is_ready(lab: Lab, claim: Expectations) -> None:
    """The network comes back while a new kubelet reports its status only every few minutes."""
    node, message = lab.target, "container runtime network not ready"
    not_ready = moments.condition_reported(node, "Ready", "False", "KubeletNotReady", message)
    update_window = windows.up_to(UPDATE_S + JITTER * lab.configuration["U"])
    seldom = faults.kubelet_settings(node, nodeStatusUpdateFrequency=f"{SELDOM_S}s")
    cni, fast = claim("conditions.ready-false-cni"), claim("registration.first-ready-fast")
    accepting = claim("conditions.accepting-pods")

    with lab.record(), ExitStack() as network:
        fault = network.enter_context(lab.inject(faults.replace_file(node, PLUGINS, NONE)))
        cni.expect(not_ready, within=update_window, after=fault.requested_at)
        no_schedule = node.taint(NOT_READY, "NoSchedule").added
        lab.wait_for(no_schedule.after(not_ready, SOON_S))
        waiting, direct = lab.run(actions.pending_pod(only_on=node)), lab.run(actions.bound_pod(to=node))
        accepting.expect(waiting.unschedulable, within=SOON_S, after=waiting.created)
        no_network = direct.event("NetworkNotReady", "network is not ready")
        accepting.expect(no_network, within=SOON_S, after=direct.bound)
        on_host = Witness(host_network=True, toleration_s=300)
        (host,) = lab.run(actions.run_witnesses(on_host, on=node))
        accepting.never(waiting.bound, throughout=lab.quiet_s, after=waiting.created)
        with lab.inject(seldom) as restart:
            while_not_ready = {"after": not_ready, "until": restart.requested_at}
            accepting.expect_later(checks.counted(host.running, 1, 1, **while_not_ready))
            network.close()
            ready = cni.expect(node.ready, within=FAST_UPDATE_S, after=fault.healing_at)
            binding_window = windows.up_to(SOON_S + windows.BIND_S)
            accepting.expect(waiting.bound, within=binding_window, after=fault.healing_at)

    stays_not_ready = checks.counted(node.ready, 0, 0, after=not_ready, until=fault.healing_at)
    for expectation in (cni, fast):
        expectation.expect_later(stays_not_ready)
    fast.expect_later(ready)
