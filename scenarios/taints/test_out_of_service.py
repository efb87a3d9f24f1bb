"""The out-of-service taint on a healthy node."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import OUT_OF_SERVICE, POD_COLLECTOR, Pod, tolerates
from nodeproof.scenario.sources import audit

VALUE, EFFECT = "nodeshutdown", "NoExecute"
MISSPELT = "node kubernetes.io/out-of-service"
"""As on the page of v1.24."""
GRACE_S = 1
PODS, FINALIZER = "/api/v1/namespaces/nodeproof/pods", "nodeproof.dev/held"
"""A pod with a finalizer stays Terminating; other pods leave nothing to be removed by force."""


@needs(nodes=2, faulted=1, duration_s="30")
def test_out_of_service_taint_on_ready_node_evicts_pods_gracefully(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    pod = lab.run(actions.run_pod(on=node))
    tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(OUT_OF_SERVICE)]))
    held = Pod(pod.namespace, f"held-{uuid.uuid4().hex[:8]}", node)
    out_of_service = node.taint(OUT_OF_SERVICE, EFFECT).added
    grace = {"metadata": {"deletionGracePeriodSeconds": GRACE_S}}
    graceful = moments.first_after(pod.became(grace), after=out_of_service)
    requests = {"verb": "delete", "resource": "pods", "namespace": pod.namespace, "user": POD_COLLECTOR}
    removals = [audit(**requests, name=name) for name in (pod.name, tolerant.name, held.name)]

    with lab.record():
        expect_key(lab, claim)
        metadata = {"name": held.name, "finalizers": [FINALIZER]}
        lab.run(actions.send_request("POST", PODS, {"metadata": metadata, "spec": pod_spec(node)}))
        with release(lab, held.name), lab.inject(faults.taint(node, OUT_OF_SERVICE, EFFECT, VALUE)) as fault:
            needs_not_ready = claim("out-of-service.needs-not-ready")
            needs_not_ready.expect(held.deletion, within=2, after=out_of_service)
            needs_not_ready.expect(graceful, within=2, after=out_of_service)
            needs_not_ready.expect(pod.removal, within=10, after=out_of_service)
            a_pass = windows.pod_gc_pass()
            needs_not_ready.never(tolerant.deletion, throughout=a_pass, after=out_of_service)
        lab.collect(*removals)

    for source in removals:
        claim("out-of-service.needs-not-ready").expect_none(source.request, **fault.span)


def expect_key(lab: Lab, claim: Expectations) -> None:
    """Expect that kubectl refuses the misspelt key, and accepts the other."""
    refused = {"status": 1, "stderr": {"$contains": "invalid taint spec"}}
    for key, answer in ((MISSPELT, refused), (OUT_OF_SERVICE, {"status": 0})):
        arguments = ("nodes", lab.target, f"{key}={VALUE}:{EFFECT}", "--dry-run=server")
        end = lab.run(actions.kubectl("taint", *arguments, may_fail=True))
        claim("out-of-service.key-spelling").expect_value(end, answer)


def pod_spec(node: str) -> dict[str, object]:
    return {"nodeName": node, "containers": [{"name": "main", "image": "nodeproof.local/pause:1"}]}


@contextmanager
def release(lab: Lab, pod: str) -> Iterator[None]:
    """Remove the finalizer of a pod at the end, whatever happens."""
    try:
        yield
    finally:
        lab.run(actions.send_request("PATCH", f"{PODS}/{pod}", {"metadata": {"finalizers": None}}))
