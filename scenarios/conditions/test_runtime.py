"""A node whose container runtime is gone, under a kubelet that runs and under one that is to start."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Journal,
    Stage,
    claims,
    condition_became,
    condition_said,
    counted,
    file_of,
    kubelet_restarted,
    logged,
    needs,
    other_file,
    restart_kubelet,
    unit_down,
    windows,
)

RUNTIME, KUBELET = "containerd.service", "kubelet.service"
SETTINGS, SOCKET, NOBODYS = (
    "/etc/kubernetes/kubelet.json",
    "unix:///run/containerd/containerd.sock",
    "unix:///run/nobodys.sock",
)
IS_DOWN = windows.formula("period", "30", "23 - slack", "36 + 1.04U + slack")
"""A runtime that did not answer for 30 s is down (maxWaitForContainerRuntime in pkg/kubelet/kubelet.go). It
was asked up to 5 s before, and some more where a question takes long; it is stopped up to 6 s after the order
on an emulated machine, and what is reported is compared each U.
"""
IS_BACK = windows.formula("within", "20 + 1.04U", "-slack", "20 + 1.04U + slack")
"""It starts in up to 8 s there, is asked each 5 s, and in vain once where nobody tries to connect anew yet
(maxBackoffDelay in k8s.io/cri-client/pkg/remote_runtime.go).
"""
START_S = 30
"""A kubelet is up to its refusal in a second; emulated, in up to 20."""


@claims("conditions.ready-false")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="75")
def test_a_node_whose_runtime_is_down_is_not_ready_and_goes_on_reporting(lab: Stage, judge: Judge) -> None:
    node = lab.target
    not_ready = condition_said(node, "Ready", "False", "KubeletNotReady", "container runtime is down")
    ready, unknown = (condition_became(node, "Ready", status) for status in ("True", "Unknown"))

    with lab.record():
        with lab.inject(unit_down(node, RUNTIME)) as down:
            falls = lab.wait_for(not_ready.after(down.ordered, IS_DOWN))
        rises = lab.wait_for(ready.after(down.healing, IS_BACK))

    for check in (falls, rises, counted(unknown, 0, 0, after=down.ordered, until=down.healing)):
        judge("conditions.ready-false", check)


@claims("components.on-node")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="2G + 45")
def test_a_kubelet_without_a_container_runtime_does_not_start(lab: Stage, judge: Judge) -> None:
    node = lab.target
    restart = kubelet_restarted(node)
    refused = logged(node, KUBELET, "validate CRI v1 runtime API for endpoint")
    exited = logged(node, KUBELET, "Main process exited, code=exited")
    unknown, ready = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))

    with lab.record():
        settings = lab.look(file_of(node, SETTINGS)).value
        with lab.inject(other_file(node, SETTINGS, settings.replace(SOCKET, NOBODYS))) as without:
            lab.do(restart_kubelet(node))
            lab.wait_for(unknown.after(restart, windows.detection_from_fault()))
            refuses = lab.wait_for(refused.after(restart, windows.prompt(START_S)))
            stays_away = lab.wait_for(ready.never_after(unknown, windows.absence(lab.quiet_s)))
            lab.hear(Journal(node, KUBELET))
        lab.wait_for(ready.after(without.healing, windows.recovery()))

    for check in (refuses, exited.after(refused, windows.prompt(10)), stays_away):
        judge("components.on-node", check)
