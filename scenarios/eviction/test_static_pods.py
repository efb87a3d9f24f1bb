"""Static pods on a node that the control plane cannot reach."""

import json
from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    became,
    claims,
    condition_became,
    kubelet_settings,
    needs,
    other_file,
    partition,
    pod_deletion,
    run_pod,
    taint_added,
    windows,
)

FILE, NAMESPACE, NAME = "/run/static-pod.json", "nodeproof", "static"
MANIFEST: Any = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": NAME, "namespace": NAMESPACE},
    "spec": {
        "containers": [{"name": "main", "image": "nodeproof.local/pause:1"}],
        "terminationGracePeriodSeconds": 1,
    },
}
STARTS_S = 60.0
LONGER = windows.formula("negative", "T + 5", "0", "T + 5")
"""Than a pod stays that nobody gave a toleration."""


@claims("eviction.static-pods-stay")
@needs(nodes=2, faulted=1, lasts="G + T + 4P + 45")
def test_a_static_pod_stays_on_an_unreachable_node(lab: Stage, judge: Judge) -> None:
    """Another pod of that node leaves."""
    node = lab.target
    # A kubelet names the mirror of a static pod after its node.
    mirror = f"{NAME}-{node}"
    runs = became("pods", mirror, {"status": {"phase": "Running"}}, NAMESPACE)
    unknown = condition_became(node, "Ready", "Unknown")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")
    there, read = other_file(node, FILE, json.dumps(MANIFEST)), kubelet_settings(node, staticPodPath=FILE)

    with lab.record(), lab.inject(there), lab.inject(read) as restart:
        starts = lab.wait_for(runs.after(restart.ordered, windows.prompt(STARTS_S)))
        pod = lab.do(run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            checks = [
                pod_deletion(pod.namespace, pod.name).after(
                    unreachable, windows.toleration(lab.toleration_s)
                ),
                pod_deletion(NAMESPACE, mirror).never_after(unreachable, LONGER),
            ]
            for check in checks:
                lab.wait_for(check)

    for check in (starts, *checks):
        judge("eviction.static-pods-stay", check)
