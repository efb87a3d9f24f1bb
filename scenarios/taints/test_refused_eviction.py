"""A pod whose deletion the API refuses for a while, on a node with a NoExecute taint."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs

KEY, EFFECT = "example.com/drained", "NoExecute"
ACTS_S, TRIED_S, RETRY_S = 6, 3, 10
"""Times (s): until a policy takes effect, until the controller has tried, and until it has tried again."""
REFUSED = {"body": {"message": {"$contains": "nodeproof refuses it"}}}


@needs(nodes=2, faulted=1, duration_s="50")
def test_refused_eviction_is_tried_again(lab: Lab, claim: Expectations) -> None:
    node, retried = lab.target, claim("taints.eviction-retried")

    with lab.record():
        pod = lab.run(actions.run_pod(on=node))
        attempt = pod.event("TaintManagerEviction", "Marking for deletion")
        binding = lab.run(actions.refuse("DELETE", pod))
        lab.wait_for(pod.deletion.never_after(moments.recording_began(), ACTS_S))
        deletion = actions.dry_run("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        retried.expect_value(lab.run(deletion), REFUSED)
        with lab.inject(faults.taint(node, KEY, EFFECT)) as taint:
            lab.wait_for(pod.deletion.never_after(taint.injected_at, TRIED_S))
            permission = actions.kubectl("delete", "validatingadmissionpolicybinding", binding)
            lab.run(permission)
            span = {"after": moments.recording_began(), "until": permission.begun}
            retried.expect_later(checks.counted(attempt, 1, 99, **span))
            retried.expect(pod.deletion, within=RETRY_S, after=permission.ended)
