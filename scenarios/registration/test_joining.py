"""A machine that joins: who makes its Node, and what that carries from the beginning."""

import uuid

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    PRESENT,
    Check,
    Moment,
    Stage,
    Workload,
    ask,
    audit,
    became,
    booted,
    changed,
    claims,
    condition_became,
    counted,
    default_of,
    join,
    made,
    make_node,
    needs,
    pending_pod,
    pod_bound,
    pod_created,
    pod_unschedulable,
    recording_began,
    removed,
    shows,
    spaced,
    taint_removed,
    try_flags,
    windows,
    workload,
    written,
)

NEW, HOSTNAME, LEASES = "joiner", "kubernetes.io/hostname", "kube-node-lease"
TAINTS = [
    {"key": "nodeproof.dev/new", "value": "yes", "effect": "NoSchedule"},
    {"key": "nodeproof.dev/young", "value": "yes", "effect": "PreferNoSchedule"},
]
TOLERATED = [{"key": taint["key"], "operator": "Exists"} for taint in TAINTS]
PODS, RENEWED_S, RENEWALS = 2, 5, 3
INITIAL = {"spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}}
BORN_WITH = {
    "registration.with-taints": {"spec": {"taints": TAINTS}},
    "registration.initial-not-ready-taint": INITIAL,
    "capacity.reported-at-registration": {
        "status": {"capacity": {"cpu": PRESENT, "memory": PRESENT, "pods": str(PODS)}}
    },
}
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
UP_S, PLACED_S, LEASED_S = 60.0, 10.0, 30.0
"""From a boot to a registered node, on an emulated machine."""
BORN_S = 5.0
"""What is made like this is so from its first moment or never: a shorter time would be the host's fault."""
OUT_OF_PODS = {"status": {"phase": "Failed", "reason": "OutOfpods"}}
REFUSED = {
    "a=1": "invalid taint spec",
    "a=1:Never": "unsupported taint effect",
    "a=1:NoSchedule,a=2:NoSchedule": "duplicated taints",
}
Promises = list[tuple[str, Check]]


def says(condition: str) -> Moment:
    known = {"type": condition, "status": {"$in": ["True", "False"]}}
    return written("nodes", {"metadata": {"name": NEW}, "status": {"conditions": [known]}})


def about_its_node(born: Moment) -> Promises:
    at_once, startup = windows.prompt(BORN_S), windows.formula("within", "S", "-slack", "S + slack")
    with_it = [
        (claim, made("nodes", NEW, like=like).after(born, at_once)) for claim, like in BORN_WITH.items()
    ]
    return [*with_it, *(("conditions.types-present", says(kind).after(born, startup)) for kind in CONDITIONS)]


def about_its_lease(born: Moment) -> Promises:
    """It is as long as four renewals."""
    soon = windows.prompt(LEASED_S)
    as_long = {"metadata": {"name": NEW}, "spec": {"leaseDurationSeconds": 4 * RENEWED_S}}
    return [
        ("heartbeat.lease-per-node", made("leases", NEW, LEASES).after(born, soon)),
        ("heartbeat.lease-interval-configurable", written("leases", as_long).after(born, soon)),
    ]


def about_pods_that_waited(pods: Workload) -> Promises:
    ready, schedulable = condition_became(NEW, "Ready", "True"), taint_removed(NEW, NOT_READY, "NoSchedule")
    bound = written("pods", {**pods.pods, "spec": {"nodeName": NEW}})
    waited = "registration.initial-not-ready-taint"
    return [
        (waited, schedulable.after(ready, windows.prompt(5))),
        (waited, bound.after(schedulable, windows.prompt(PLACED_S))),
    ]


def about_a_node_made_by_hand(name: str) -> Promises:
    """No kubelet says that it is not ready, and nobody else does before the start-up grace is over."""
    born, schedulable = made("nodes", name), taint_removed(name, NOT_READY, "NoSchedule")
    at_once = windows.prompt(BORN_S)
    return [
        ("registration.initial-not-ready-taint", check)
        for check in (
            made("nodes", name, like=INITIAL).after(born, at_once),
            schedulable.after(born, at_once),
            condition_became(name, "Ready", "True").never_after(born, windows.absence(BORN_S)),
        )
    ]


def about_pods_that_are_too_many(lab: Stage) -> Promises:
    """One is there; there is room for a second, none for a third, and none for one that asks nobody."""
    second, third = (lab.do(pending_pod(only_on=NEW, tolerations=TOLERATED)) for _each in range(2))
    created = pod_created(third.namespace, third.name)
    placed = pod_bound(second.namespace, second.name)
    lab.wait_for(placed.after(pod_created(second.namespace, second.name), windows.prompt(PLACED_S)))
    spec = {"nodeName": NEW, "tolerations": TOLERATED, "containers": [{"name": "main", "image": "pause"}]}
    metadata = {"name": f"{third.name}-by-hand"}
    lab.do(ask("POST", f"/api/v1/namespaces/{third.namespace}/pods", {"metadata": metadata, "spec": spec}))
    by_hand = pod_created(third.namespace, metadata["name"])
    fails = became("pods", metadata["name"], OUT_OF_PODS, third.namespace)
    return [
        ("scheduling.max-pods", check)
        for check in (
            placed.after(pod_created(second.namespace, second.name), windows.prompt(PLACED_S)),
            pod_unschedulable(third.namespace, third.name).after(created, windows.prompt(PLACED_S)),
            fails.after(by_hand, windows.prompt(PLACED_S)),
            pod_bound(third.namespace, third.name).never_after(created, windows.absence(lab.quiet_s)),
        )
    ]


@claims(
    "registration.self-register-default",
    "registration.with-taints",
    "registration.kubeconfig-credentials",
    "registration.initial-not-ready-taint",
    "capacity.reported-at-registration",
    "conditions.types-present",
    "heartbeat.lease-per-node",
    "heartbeat.lease-interval-configurable",
    "scheduling.max-pods",
)
@needs(nodes=2, lasts="12R + 30")
def test_a_kubelet_registers_its_node_as_it_was_told_under_its_own_name(lab: Stage, judge: Judge) -> None:
    # Of a namesake the controller would remember when it was last heard of.
    by_hand = f"by-hand-{uuid.uuid4().hex[:8]}"
    joins = join(NEW, registerWithTaints=TAINTS, maxPods=PODS, nodeLeaseDurationSeconds=4 * RENEWED_S)
    born = made("nodes", NEW)
    first = workload("Deployment", nodeSelector={HOSTNAME: NEW}, tolerations=TOLERATED)
    own, others = (
        audit(verb="create", resource="nodes", name=NEW, user=user)
        for user in (f"system:node:{NEW}", {"$not": f"system:node:{NEW}"})
    )

    with lab.record():
        # Requests that come within the slack of an end of what is counted may lie beyond it.
        quiet = windows.absence(lab.quiet_s)
        lab.do(first.make)
        lab.wait_for(born.never_after(recording_began(), quiet))
        lab.do(make_node(by_hand, {HOSTNAME: by_hand}))
        lab.do(joins)
        registered = lab.wait_for(born.after(booted(NEW), windows.prompt(UP_S)))
        promised = [*about_its_node(born), *about_pods_that_waited(first), *about_its_lease(born)]
        promised += about_a_node_made_by_hand(by_hand)
        for _claim, check in promised:
            lab.wait_for(check)
        too_many = about_pods_that_are_too_many(lab)
        for _claim, check in too_many:
            lab.wait_for(check)
        renewed_often = windows.absence((RENEWALS + 1) * 1.04 * RENEWED_S)
        lab.wait_for(removed("nodes", NEW).never_after(made("leases", NEW, LEASES), renewed_often))
        lab.hear(own, others)

    judge("registration.self-register-default", registered)
    judge("registration.self-register-default", default_of("registerNode"))
    for claim, check in (*promised, *too_many):
        judge(claim, check)
    pace = windows.formula("period", f"{RENEWED_S}", f"{RENEWED_S} - slack", f"1.04 * {RENEWED_S} + slack")
    renewals = changed("leases", NEW, "spec.renewTime", LEASES)
    paced = spaced(renewals, pace, at_least=RENEWALS - 1, after=made("leases", NEW, LEASES), until=own.heard)
    judge("heartbeat.lease-interval-configurable", paced)
    for source, low, high in ((own, 1, 9), (others, 0, 0)):
        often = counted(source.request, low, high, after=recording_began(), until=source.heard)
        judge("registration.kubeconfig-credentials", often)


@claims("registration.with-taints-format")
@needs(nodes=2)
def test_a_kubelet_refuses_taints_that_are_not_written_as_taints(lab: Stage, judge: Judge) -> None:
    with lab.record():
        taken = lab.do(try_flags("kubelet", "--register-with-taints=a=1:NoSchedule,b=2:NoExecute"))
        refused = {
            said: lab.do(try_flags("kubelet", f"--register-with-taints={taints}"))
            for taints, said in REFUSED.items()
        }
    judge("registration.with-taints-format", shows(taken, {"status": 0}))
    for said, seen in refused.items():
        judge("registration.with-taints-format", shows(seen, {"status": 1, "stderr": {"$contains": said}}))
