"""A machine that shuts down while its kubelet cannot tell what became of the pods."""

import uuid
from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    Witness,
    ask,
    claims,
    condition_became,
    counted,
    kubelet_of,
    kubelet_settings,
    last_sign,
    machine_ended,
    needs,
    run_witnesses,
    shows,
    shutdown,
    sigterm,
    standing,
    windows,
    would,
    written,
)

TOTAL_S, CRITICAL_S, PATIENT_S, SOON_S = 60, 20, 300, 15
OFF_S = 35
"""How long after its last pod a machine may take to be off: less than what its two periods would leave."""
ACTS_S = 8
"""A new admission policy acts once the API server has it compiled: about a second."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
OVER = {"$in": ["Failed", "Succeeded"]}
REFUSES = "nodeproof refuses it"
REFUSED = {"body": {"message": {"$contains": REFUSES}}}


def refusal(name: str, node: str) -> tuple[Any, Any]:
    """A policy by which a node's kubelet may say nothing of pods, and its binding."""
    user = kubelet_of(node).name
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    said = [{"expression": f"request.userInfo.username != '{user}'", "message": REFUSES}]
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": said}
    group = "admissionregistration.k8s.io/v1"
    policy = {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}}
    binding = {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}}
    return {**policy, "spec": spec}, {**binding, "spec": {"policyName": name, "validationActions": ["Deny"]}}


@claims("graceful-shutdown.status-may-be-lost")
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="180")
@standing(
    kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_a_shutdown_waits_for_the_end_of_pods_and_not_for_anybody_to_hear_of_it(
    lab: Stage, judge: Judge
) -> None:
    """The kubelet may say all else; of its pods the API has nothing but that they run."""
    node, name = lab.target, f"silent-{uuid.uuid4().hex[:8]}"
    policy, binding = refusal(name, node)
    unknown, ready = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))
    bind = ask("POST", BINDINGS, binding)

    with lab.record():
        (pod,) = lab.do(run_witnesses(Witness(tolerates_s=PATIENT_S), on=node))
        told = {"metadata": {"namespace": pod.namespace, "name": pod.name}, "status": {"phase": OVER}}
        path, noted = (
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
            {"status": {"message": name}},
        )
        before = lab.do(would("PATCH", path, noted, by=kubelet_of(node)))
        lab.do(ask("POST", POLICIES, policy))
        lab.do(bind)
        lab.wait_for(unknown.never_after(bind.ended, windows.absence(ACTS_S)))
        after = lab.do(would("PATCH", path, noted, by=kubelet_of(node)))
        lab.expect(REFUSES in str(after.value["body"]), "one whose policies act", "see its API server's log")
        with lab.inject(shutdown(node)) as down:
            lab.wait_for(machine_ended(node).after(down.ordered, windows.prompt(TOTAL_S + OFF_S)))
        lab.hear(pod)
        lab.wait_for(ready.after(down.healing, windows.recovery()))

    for check in (
        shows(before, {"status": 200}),
        shows(after, REFUSED),
        sigterm(pod.name).after(down.ordered, windows.prompt(SOON_S)),
        machine_ended(node).after(last_sign(pod.name), windows.prompt(OFF_S)),
        counted(written("pods", told), 0, 0, after=down.ordered, until=machine_ended(node)),
    ):
        judge("graceful-shutdown.status-may-be-lost", check)
