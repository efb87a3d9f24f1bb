"""A Node that somebody makes by hand, and that no kubelet ever reports for."""

import uuid

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    ask,
    audit,
    claims,
    condition_became,
    counted,
    event_reported,
    kubectl,
    made,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    removed,
    shows,
    taint_added,
    windows,
)

NODES = "/api/v1/nodes"
LARGE_ENOUGH = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
"""What keeps pods away is its health alone."""


@claims(
    "manual-node.never-updated-unknown",
    "monitoring.startup-grace",
    "manual-node.not-eligible",
    "manual-node.delete-stops-checks",
    "manual-node.object-kept",
    "cloud.none-without-provider",
    "deletion-gc.manual-needed",
)
@needs(nodes=2, lasts="3S + 15")
def test_a_node_that_no_kubelet_reports_for_becomes_unknown_and_stays_empty(lab: Stage, judge: Judge) -> None:
    """It gets pods for as long as its kubelet may still start. A cloud's controller would look for its
    machine at once, and each 5 s.
    """
    # Of a namesake the controller would remember when it was last heard of.
    name = f"by-hand-{uuid.uuid4().hex[:8]}"
    there, gone = made("nodes", name), removed("nodes", name)
    unknown, tainted = (
        condition_became(name, "Ready", "Unknown"),
        taint_added(name, UNREACHABLE, "NoSchedule"),
    )
    # Its creationTimestamp, from which is counted, has no fraction of a second.
    grace = windows.formula("period", "S", "S - 1 - slack", "S + P + 1 + slack")
    while_it_may_start = windows.formula("within", "0.7S", "-slack", "0.7S + slack")
    one_pass = windows.formula("within", "P + 1", "-slack", "P + 1 + slack")
    ended = event_reported("RemovingNode", "Node", name, "")
    labels = {"kubernetes.io/hostname": name}
    deletions = audit(verb="delete", resource="nodes", name=name)

    with lab.record():
        lab.do(ask("POST", NODES, {"metadata": {"name": name, "labels": labels}, "status": LARGE_ENOUGH}))
        early = lab.do(pending_pod(only_on=name))
        early_bound = pod_bound(early.namespace, early.name)
        taken = lab.wait_for(early_bound.after(pod_created(early.namespace, early.name), while_it_may_start))
        in_time = lab.wait_for(unknown.after(there, grace))
        lab.wait_for(tainted.after(there, grace))
        pod = lab.do(pending_pod(only_on=name))
        asked, bound = pod_created(pod.namespace, pod.name), pod_bound(pod.namespace, pod.name)
        tried = lab.wait_for(pod_unschedulable(pod.namespace, pod.name).after(asked, windows.prompt(5)))
        unbound = lab.wait_for(bound.never_after(asked, windows.absence(lab.quiet_s)))
        kept = gone.never_after(there, windows.formula("negative", "3S", "0", "3S"))
        lab.wait_for(gone.never_after(there, windows.absence(3 * lab.configuration["S"] + lab.clear_s)))
        deleted = lab.do(kubectl("delete", "node", name, may_fail=True))
        said = lab.wait_for(ended.after(gone, one_pass))
        stays_away = lab.wait_for(there.never_after(gone, windows.absence(lab.quiet_s)))
        lab.hear(deletions)

    judge("manual-node.never-updated-unknown", in_time)
    judge("monitoring.startup-grace", in_time)
    for check in (taken, tried, unbound):
        judge("manual-node.not-eligible", check)
    for check in (said, stays_away):
        judge("manual-node.delete-stops-checks", check)
    once = counted(deletions.request, 1, 1, after=there, until=deletions.heard)
    for claim in ("manual-node.object-kept", "cloud.none-without-provider", "deletion-gc.manual-needed"):
        judge(claim, kept)
        judge(claim, once)
    judge("deletion-gc.manual-needed", shows(deleted, {"status": 0}))
