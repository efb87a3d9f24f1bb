"""Nodes whose container runtime is down, while the kubelet runs and when it starts."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, probes, windows
from nodeproof.scenario.sources import Journal

RUNTIME, KUBELET = "containerd.service", "kubelet.service"
SETTINGS = "/etc/kubernetes/kubelet.json"
SOCKET = "unix:///run/containerd/containerd.sock"
UNUSED_SOCKET = "unix:///run/unused.sock"
DOWN_WINDOW = windows.formula("period", "30", "23 - slack", "36 + 1.04U + slack")
"""A runtime that has not answered for 30 s is down (maxWaitForContainerRuntime in pkg/kubelet/kubelet.go).
Its last answer is up to 5 s old, or more where a request takes long; the status is compared every U. A
virtual machine without KVM takes up to 6 s to stop it.
"""
UP_WINDOW = windows.up_to("20 + 1.04U")
"""On a virtual machine without KVM it starts in up to 8 s. The kubelet asks every 5 s, and one request may
fail before its gRPC client reconnects (maxBackoffDelay in k8s.io/cri-client/pkg/remote_runtime.go).
"""
START_S = 30
"""A kubelet takes a second to refuse to start, and up to 20 s on a virtual machine without KVM."""


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="75")
def test_node_with_stopped_runtime_is_not_ready_but_reports(lab: Lab, claim: Expectations) -> None:
    node, ready_false = lab.target, claim("conditions.ready-false")
    while_down = claim("runtime-restart.node-not-ready")
    reason = ("KubeletNotReady", "container runtime is down")
    not_ready = moments.condition_reported(node, "Ready", "False", *reason)

    with lab.record():
        with lab.inject(faults.unit_down(node, RUNTIME)) as fault:
            down = ready_false.expect(not_ready, within=DOWN_WINDOW, after=fault.requested_at)
        up = ready_false.expect(node.ready, within=UP_WINDOW, after=fault.healing_at)

    for judgment in (down, up):
        while_down.expect_later(judgment)

    ready_false.expect_none(node.unknown, after=fault.requested_at, until=fault.healing_at)


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="2G + 45")
def test_kubelet_without_container_runtime_does_not_start(lab: Lab, claim: Expectations) -> None:
    node, on_node = lab.target, claim("components.on-node")
    restart = moments.kubelet_restarted(node)
    refusal = moments.logged(node, KUBELET, "validate CRI v1 runtime API for endpoint")
    process_exit = moments.logged(node, KUBELET, "Main process exited, code=exited")

    with lab.record():
        settings = lab.observe(probes.file_of(node, SETTINGS)).value
        without_runtime = faults.replace_file(node, SETTINGS, settings.replace(SOCKET, UNUSED_SOCKET))
        with lab.inject(without_runtime) as fault:
            lab.run(actions.restart_kubelet(node))
            lab.wait_for(node.unknown.after(restart, windows.detection_from_fault()))
            # The journal is collected below: this waits until the end of the window.
            on_node.expect(refusal, within=START_S, after=restart)
            on_node.expect_later(process_exit, within=10, after=refusal)
            on_node.never(node.ready, throughout=lab.quiet_s, after=node.unknown)
            lab.collect(Journal(node, KUBELET))
        # systemd restarts the kubelet (Restart=always), now with its original file.
        lab.wait_until_ready(node, fault)
