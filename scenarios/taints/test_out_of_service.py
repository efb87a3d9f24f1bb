"""The out-of-service taint on a healthy node."""

from contextlib import ExitStack

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import OUT_OF_SERVICE, POD_COLLECTOR, Pod, tolerates, unique
from nodeproof.scenario.sources import audit

VALUE, EFFECT = "nodeshutdown", "NoExecute"
MISSPELT = "node kubernetes.io/out-of-service"
"""As on the page of v1.24."""


@needs(nodes=2, faulted=1, duration_s="30")
def test_out_of_service_taint_on_ready_node_evicts_pods_gracefully(lab: Lab, claim: Expectations) -> None:
    """A pod with a finalizer stays Terminating; other pods leave nothing to be removed by force."""
    node, needs_not_ready = lab.target, claim("out-of-service.needs-not-ready")
    pod = lab.run(actions.run_pod(on=node))
    tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(OUT_OF_SERVICE)]))
    held = Pod(pod.namespace, unique("held"), node)
    release = actions.send_request("PATCH", held.path, {"metadata": {"finalizers": None}})
    out_of_service = node.taint(OUT_OF_SERVICE).added
    grace = pod.became({"metadata": {"deletionGracePeriodSeconds": 1}})
    requests = {"verb": "delete", "resource": "pods", "namespace": pod.namespace, "user": POD_COLLECTOR}
    removals = [audit(**requests, name=name) for name in (pod.name, tolerant.name, held.name)]

    with lab.record():
        expect_key(lab, claim)
        lab.run(actions.create_pod(held, finalizers=["nodeproof.dev/held"]))
        with ExitStack() as stack:
            stack.callback(lab.run, release)
            fault = stack.enter_context(lab.inject(faults.taint(node, OUT_OF_SERVICE, EFFECT, VALUE)))
            graceful = moments.first_after(grace, after=out_of_service)
            for moment in (held.deletion, graceful):
                needs_not_ready.expect(moment, within=2, after=out_of_service)
            needs_not_ready.expect(pod.removal, within=10, after=out_of_service)
            a_pass = windows.pod_gc_pass()
            needs_not_ready.never(tolerant.deletion, throughout=a_pass, after=out_of_service)
        lab.collect(*removals)

    for source in removals:
        needs_not_ready.expect_none(source.request, **fault.span)


def expect_key(lab: Lab, claim: Expectations) -> None:
    """Expect that kubectl refuses the misspelt key, and accepts the other."""
    refused = {"status": 1, "stderr": {"$contains": "invalid taint spec"}}
    for key, answer in ((MISSPELT, refused), (OUT_OF_SERVICE, {"status": 0})):
        arguments = ("nodes", lab.target, f"{key}={VALUE}:{EFFECT}", "--dry-run=server")
        end = lab.run(actions.kubectl("taint", *arguments, may_fail=True))
        claim("out-of-service.key-spelling").expect_value(end, answer)
