"""A kubelet that is stopped, on a node that is well."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    Witness,
    changed,
    claims,
    condition_became,
    last_heartbeat,
    lives_on,
    needs,
    run_witnesses,
    unit_down,
    windows,
)

PATIENT_S = 300
"""How long the pod bears an unreachable node: nothing but the kubelet's end is to touch it."""


@claims("heartbeat.kubelet-stop")
@needs(nodes=2, faulted=1, features=("real-pods",), lasts="G + 3P + 40")
def test_a_node_whose_kubelet_is_stopped_sends_no_heartbeats_and_its_containers_run_on(
    lab: Stage, judge: Judge
) -> None:
    node, known = lab.target, lab.configuration
    (pod,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
    unknown, ready_again = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))
    renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")

    with lab.record():
        with lab.inject(unit_down(node)) as down:
            lab.wait_for(unknown.after(down.began, windows.detection_from_fault()))
            silent = lab.wait_for(renewed.never_after(down.began, windows.absence(known["G"])))
        lab.wait_for(ready_again.after(down.healing, windows.recovery()))
        lab.hear(pod)

    lost = unknown.after(last_heartbeat(node, unknown), windows.detection())
    for check in (silent, lost, lives_on(pod.name, down.began, down.healing)):
        judge("heartbeat.kubelet-stop", check)
