"""What a cluster with a cloud does about nodes whose machines are shut down, or gone.

The cloud controller manager is upstream's; what it is answered about each machine is the scenario's.
"""

from nodeproof.model.duration import duration_s
from nodeproof.plugin import Judge
from nodeproof.scenario import (
    CLOUD,
    CloudCalls,
    Stage,
    claims,
    cloud,
    cloud_says,
    condition_became,
    counted,
    event_reported,
    made,
    manager_field,
    needs,
    next_of,
    power_off,
    removed,
    taint_added,
    taint_removed,
    windows,
)

SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
KEPT_PASSES, FEW_PASSES = 10, 5
WRITTEN_S = 0.5
"""What asking twice and writing once may take a pass."""
BACK_S = 60.0


@claims(
    "cloud.node-deleted-when-vm-gone",
    "cloud.only-unhealthy-checked",
    "cloud.vm-exists-kept",
    "cloud.shutdown-taint",
)
@needs(nodes=3, faulted=2, components=(CLOUD,), features=("power",), lasts="G + 14P + 20")
def test_a_cloud_is_asked_about_lost_nodes_and_its_answer_decides(lab: Stage, judge: Judge) -> None:
    """One machine is shut down and started again, and is well when the cloud denies it; one is lost, and
    exists until it is gone.
    """
    off, lost = lab.targets
    unready = {node: condition_became(node, "Ready", "Unknown") for node in (off, lost)}
    ready, deleted = condition_became(off, "Ready", "True"), removed("nodes", lost)
    of_off, of_lost = CloudCalls(off), CloudCalls(lost, "InstanceExists")
    denied, gone = cloud_says({off: "gone"}), cloud_says({off: "gone", lost: "gone"})
    labels = {node: lab.labels(node) for node in lab.targets}
    still_ready = windows.formula("negative", "G - 2R", "0", "G - 2R")

    with lab.record(), lab.inject(cloud({off: "shut-down", lost: "exists"}, labels)):
        period_s = duration_s(lab.look(manager_field(CLOUD, "KubeCloudShared.NodeMonitorPeriod")).value)
        bound, passes_s, few_s = f"{period_s + WRITTEN_S}", KEPT_PASSES * period_s, FEW_PASSES * period_s
        a_pass = windows.formula("within", bound, "-slack", f"{bound} + slack")
        passes = windows.formula("negative", f"{passes_s}", "0", f"{passes_s}")
        few = windows.formula("negative", f"{few_s}", "0", f"{few_s}")
        with lab.inject(power_off(lost)) as power:
            with lab.inject(power_off(off)) as cut:
                lab.wait_for(unready[off].after(power.began, windows.detection_from_fault()))
                tainted = lab.wait_for(taint_added(off, SHUT_DOWN, "NoSchedule").after(unready[off], a_pass))
            lab.wait_for(ready.after(unready[off], windows.prompt(BACK_S)))
            untainted = lab.wait_for(taint_removed(off, SHUT_DOWN, "NoSchedule").after(ready, a_pass))
            lab.do(denied)
            lab.wait_for(
                removed("nodes", off).never_after(denied.ended, windows.absence(few_s + lab.clear_s))
            )
            lab.wait_for(deleted.never_after(unready[lost], windows.absence(passes_s + lab.clear_s)))
            lab.do(gone)
            event = event_reported("DeletingNode", "Node", lost, "")
            # It may be asked before whoever answers knows that it was told.
            told = windows.formula("within", f"{bound} + 2", "0", f"{bound} + 2 + slack")
            taken = [lab.wait_for(each.after(gone.begun, told)) for each in (deleted, event)]
            lab.hear(of_off, of_lost)
            # Else it would be taken away again before it is Ready.
            lab.do(cloud_says({}))
        lab.wait_for(next_of(made("nodes", lost), after=deleted).after(deleted, windows.prompt(BACK_S)))

    asked = counted(of_lost.call, KEPT_PASSES - 2, 9999, after=unready[lost], until=gone.begun)
    promised = {
        "cloud.node-deleted-when-vm-gone": taken,
        "cloud.vm-exists-kept": [deleted.never_after(unready[lost], passes), asked],
        "cloud.shutdown-taint": [tainted, untainted],
        "cloud.only-unhealthy-checked": [
            asked,
            of_off.call.never_after(cut.began, still_ready),
            of_off.call.never_after(denied.ended, few),
            removed("nodes", off).never_after(denied.ended, few),
        ],
    }
    for claim, checks in promised.items():
        for check in checks:
            judge(claim, check)
