"""A shutdown during which the kubelet cannot report the end of its pods."""

import uuid
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs
from nodeproof.scenario.kubernetes import Witness
from nodeproof.scenario.marks import standing

TOTAL_S, CRITICAL_S, TOLERATION_S, SOON_S = 60, 20, 300, 15
POWER_OFF_S = 35
"""Longest time from the last pod's end until the machine is off: less than the two periods would leave."""
ACTS_S = 8
"""A new admission policy takes effect once the API server has compiled it: after about a second."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
OVER = {"$in": ["Failed", "Succeeded"]}
REFUSES = "nodeproof refuses it"
REFUSED = {"body": {"message": {"$contains": REFUSES}}}


def refusal(name: str, node: str) -> tuple[Any, Any]:
    """Return a policy that denies the node's kubelet pod status updates, and its binding."""
    user = actions.kubelet_of(node).name
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    rules = [{"expression": f"request.userInfo.username != '{user}'", "message": REFUSES}]
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": rules}
    group = "admissionregistration.k8s.io/v1"
    policy = {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}}
    binding = {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}}
    return {**policy, "spec": spec}, {**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}}


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="180")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_shutdown_waits_for_pods_to_end_not_for_their_status_updates(lab: Lab, claim: Expectations) -> None:
    """The kubelet may report everything else; in the API, its pods still run."""
    node, name = lab.target, f"silent-{uuid.uuid4().hex[:8]}"
    policy, binding = refusal(name, node)
    bind, end = actions.send_request("POST", BINDINGS, binding), moments.machine_ended(node)
    lost = claim("graceful-shutdown.status-may-be-lost")

    with lab.record():
        (pod,) = lab.run(actions.run_witnesses(Witness(toleration_s=TOLERATION_S), on=node))
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        patch, kubelet = {"status": {"message": name}}, actions.kubelet_of(node)
        allowed = lab.run(actions.dry_run("PATCH", path, patch, by=kubelet))
        lost.expect_value(allowed, {"status": 200})
        lab.run(actions.send_request("POST", POLICIES, policy))
        lab.run(bind)
        lab.wait_for(node.unknown.never_after(bind.ended, ACTS_S))
        refused = lab.run(actions.dry_run("PATCH", path, patch, by=kubelet))
        has_effect = REFUSES in str(refused.value["body"])
        lab.require_lab(
            has_effect, otherwise="the admission policy has no effect", next_step="see the API server's log"
        )
        lost.expect_value(refused, REFUSED)
        with lab.inject(faults.shutdown(node)) as fault:
            lab.wait_for(end.after(fault.requested_at, TOTAL_S + POWER_OFF_S))
        lab.collect(pod)
        lab.wait_until_ready(node, fault)

    lost.expect_later(pod.sigterm, within=SOON_S, after=fault.requested_at)
    lost.expect_later(end, within=POWER_OFF_S, after=pod.last_sign)
    finished = {"metadata": {"namespace": pod.namespace, "name": pod.name}, "status": {"phase": OVER}}
    lost.expect_none(moments.written("pods", finished), after=fault.requested_at, until=end)
