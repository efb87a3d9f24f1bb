"""The taint that says that a node is out of service, on one that is not."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    OUT_OF_SERVICE,
    POD_COLLECTOR,
    Stage,
    ask,
    audit,
    became,
    claims,
    counted,
    kubectl,
    needs,
    next_of,
    pod_deletion,
    pod_gone,
    run_pod,
    shows,
    taint,
    taint_added,
    tolerates,
    windows,
)

VALUE, EFFECT = "nodeshutdown", "NoExecute"
MISSPELT = "node kubernetes.io/out-of-service"
"""As the page of v1.24 has it."""
GRACE_S = 1
PODS, HELD = "/api/v1/namespaces/nodeproof/pods", "nodeproof.dev/held"
"""A pod that stays in deletion longer than that: of the others there is nothing to be removed by force."""


def on(node: str) -> dict[str, object]:
    return {"nodeName": node, "containers": [{"name": "main", "image": "nodeproof.local/pause:1"}]}


@contextmanager
def release(lab: Stage, held: str) -> Iterator[None]:
    """Whatever happens, it may go in the end."""
    try:
        yield
    finally:
        lab.do(ask("PATCH", f"{PODS}/{held}", {"metadata": {"finalizers": None}}))


@claims("out-of-service.needs-not-ready", "out-of-service.key-spelling")
@needs(nodes=2, faulted=1, lasts="30")
def test_pods_of_a_ready_node_that_is_called_out_of_service_keep_their_grace(
    lab: Stage, judge: Judge
) -> None:
    node = lab.target
    leaves, stays = (
        lab.do(run_pod(on=node)),
        lab.do(run_pod(on=node, tolerations=[tolerates(OUT_OF_SERVICE)])),
    )
    held = f"held-{uuid.uuid4().hex[:8]}"
    tainted = taint_added(node, OUT_OF_SERVICE, EFFECT)
    with_grace = became(
        "pods", leaves.name, {"metadata": {"deletionGracePeriodSeconds": GRACE_S}}, leaves.namespace
    )
    by_force = audit(verb="delete", resource="pods", namespace=leaves.namespace, user=POD_COLLECTOR)
    of_ours = [audit(**by_force.pattern, name=name) for name in (leaves.name, stays.name, held)]
    spelt = [
        kubectl("taint", "nodes", node, f"{key}={VALUE}:{EFFECT}", "--dry-run=server", may_fail=True)
        for key in (MISSPELT, OUT_OF_SERVICE)
    ]

    with lab.record():
        wrong, right = (lab.do(each) for each in spelt)
        lab.do(ask("POST", PODS, {"metadata": {"name": held, "finalizers": [HELD]}, "spec": on(node)}))
        with release(lab, held), lab.inject(taint(node, OUT_OF_SERVICE, EFFECT, VALUE)) as out:
            terminates = pod_deletion(leaves.namespace, held).after(tainted, windows.prompt(2))
            lab.wait_for(terminates)
            graceful = [
                lab.wait_for(next_of(with_grace, after=tainted).after(tainted, windows.prompt(2))),
                lab.wait_for(pod_gone(leaves.namespace, leaves.name).after(tainted, windows.prompt(10))),
            ]
            lives = pod_deletion(stays.namespace, stays.name)
            kept = lab.wait_for(lives.never_after(tainted, windows.pod_gc_pass()))
        lab.hear(*of_ours)

    for check in (*graceful, terminates, kept):
        judge("out-of-service.needs-not-ready", check)
    for source in of_ours:
        nobody = counted(source.request, 0, 0, after=out.began, until=out.healing)
        judge("out-of-service.needs-not-ready", nobody)
    judge(
        "out-of-service.key-spelling",
        shows(wrong, {"status": 1, "stderr": {"$contains": "invalid taint spec"}}),
    )
    judge("out-of-service.key-spelling", shows(right, {"status": 0}))
