"""Nodes that somebody makes by hand: what they are given counts, and nothing else."""

import uuid

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    ZONE_LABEL,
    Check,
    Pod,
    Stage,
    ask,
    became,
    claims,
    condition_became,
    keep_alive,
    make_node,
    metric,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    recording_began,
    shows,
    taint_removed,
    windows,
)

NODES, HOSTNAME, REGION_LABEL = "/api/v1/nodes", "kubernetes.io/hostname", "topology.kubernetes.io/region"
OLD_REGION, OLD_ZONE = (f"failure-domain.beta.kubernetes.io/{each}" for each in ("region", "zone"))
ROOM, LEFT = {"cpu": "4", "memory": "8Gi", "pods": "110"}, {"cpu": "1", "memory": "8Gi", "pods": "110"}
STATUS = {
    "capacity": ROOM,
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "conditions": [{"type": "Said", "status": "True", "reason": "AtCreation"}],
    "nodeInfo": {"kernelVersion": "nodeproof"},
}
TRIED_S, BOUND_S = 5.0, 10.0
MOST_OF_IT, THE_REST = {"cpu": "600m"}, {"cpu": "300m"}
"""Of what the Node gives away: one of the first fits, and the other does not fit beside it."""
SIZE = "node_collector_zone_size"


def bound_of(pod: Pod) -> Check:
    """It is bound soon after it was made."""
    created = pod_created(pod.namespace, pod.name)
    return pod_bound(pod.namespace, pod.name).after(created, windows.prompt(BOUND_S))


@claims("manual-node.capacity-required", "scheduling.sum-of-requests")
@needs(nodes=2, lasts="35")
def test_a_hand_made_node_takes_what_fits_into_what_it_says_it_has(lab: Stage, judge: Judge) -> None:
    """Its capacity is 4 CPUs in the end, of which it gives 1 away: two pods of which each fits do not fit
    together, though their sum is less than the capacity.
    """
    name = f"by-hand-{uuid.uuid4().hex[:8]}"
    healthy = taint_removed(name, NOT_READY, "NoSchedule")
    has_room, gives_less = (
        became("nodes", name, {"status": {what: each}})
        for what, each in (("capacity", ROOM), ("allocatable", LEFT))
    )
    quiet = windows.absence(lab.quiet_s)

    with lab.record():
        lab.do(make_node(name, {HOSTNAME: name}))
        lab.do(keep_alive(name))
        lab.wait_for(healthy.after(recording_began(), windows.prompt(BOUND_S)))
        first = lab.do(pending_pod(only_on=name))
        asked, bound = pod_created(first.namespace, first.name), pod_bound(first.namespace, first.name)
        waits = [
            lab.wait_for(
                pod_unschedulable(first.namespace, first.name).after(asked, windows.prompt(TRIED_S))
            ),
            bound.never_after(asked, quiet),
        ]
        lab.wait_for(bound.never_after(asked, windows.absence(lab.quiet_s + lab.clear_s)))
        lab.do(ask("PATCH", f"{NODES}/{name}/status", {"status": {"capacity": ROOM}}))
        goes = lab.wait_for(bound.after(has_room, windows.prompt(BOUND_S)))
        lab.do(ask("PATCH", f"{NODES}/{name}/status", {"status": {"allocatable": LEFT}}))
        lab.wait_for(gives_less.after(has_room, windows.prompt(BOUND_S)))
        fits = [lab.wait_for(bound_of(lab.do(pending_pod(only_on=name, requests=MOST_OF_IT))))]
        second = lab.do(pending_pod(only_on=name, requests=MOST_OF_IT))
        tried = pod_created(second.namespace, second.name)
        too_much = [
            lab.wait_for(
                pod_unschedulable(second.namespace, second.name).after(tried, windows.prompt(TRIED_S))
            ),
            lab.wait_for(pod_bound(second.namespace, second.name).never_after(tried, quiet)),
        ]
        fits.append(lab.wait_for(bound_of(lab.do(pending_pod(only_on=name, requests=THE_REST)))))

    for check in (*waits, goes):
        judge("manual-node.capacity-required", check)
    for check in (*fits, *too_much):
        judge("scheduling.sum-of-requests", check)


@claims("manual-node.status-on-create", "zones.zone-key", "conditions.network-unavailable-untouched")
@needs(nodes=2, lasts="G + 15")
def test_a_hand_made_node_has_the_status_and_the_zone_that_it_was_given(lab: Stage, judge: Judge) -> None:
    """A zone is a region's and a name's, by whatever labels; the last Node speaks once and falls silent."""
    mark = uuid.uuid4().hex[:8]
    region, zone = f"region-{mark}", f"zone-{mark}"
    one, other, elsewhere, old, silent = (f"by-hand-{mark}-{each}" for each in range(5))
    labels = {
        other: {REGION_LABEL: region, ZONE_LABEL: zone},
        elsewhere: {REGION_LABEL: f"other-{mark}", ZONE_LABEL: zone},
        old: {REGION_LABEL: region, ZONE_LABEL: zone, OLD_REGION: f"old-{mark}", OLD_ZONE: zone},
        silent: {REGION_LABEL: f"silent-{mark}", ZONE_LABEL: zone},
    }
    keys = {f"{region}:\x00:{zone}": 2, f"other-{mark}:\x00:{zone}": 1, f"old-{mark}:\x00:{zone}": 1}
    unknown = condition_became(silent, "Ready", "Unknown")
    as_said = {"type": "NetworkUnavailable", "status": "False", "reason": "Said"}
    ready = {"type": "Ready", "status": "True", "reason": "Said"}
    altered = became("nodes", silent, {"status": {"conditions": {"$not": [as_said]}}})

    with lab.record():
        first = {"name": one, "labels": labels[other]}
        made = lab.do(ask("POST", NODES, {"metadata": first, "status": STATUS}))
        found = lab.do(ask("GET", f"{NODES}/{one}"))
        for name, given in labels.items():
            lab.do(make_node(name, given))
        # Whoever says one condition says that there are no others.
        lab.do(ask("PATCH", f"{NODES}/{silent}/status", {"status": {"conditions": [as_said, ready]}}))
        silence = condition_became(silent, "Ready", "True")
        lab.wait_for(unknown.after(silence, windows.formula("within", "G + P + 1", "0", "G + P + 1 + slack")))
        stays = lab.wait_for(altered.never_after(unknown, windows.absence(lab.configuration["P"] + 4)))
        sizes = [(lab.look(metric("kube-controller-manager", SIZE, zone=key)), keys[key]) for key in keys]

    judge("manual-node.status-on-create", shows(made, {"status": 201}))
    judge("manual-node.status-on-create", shows(found, {"body": {"status": STATUS}}))
    for seen, size in sizes:
        judge("zones.zone-key", shows(seen, size))
    judge("conditions.network-unavailable-untouched", stays)
