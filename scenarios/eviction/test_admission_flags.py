"""The default tolerations of new pods, with other values in the API server's flags."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, faults, needs
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, tolerates

SERVER = "kube-apiserver"
UNREACHABLE_S, NOT_READY_S = 21, 23
PODS = "/api/v1/namespaces/nodeproof/pods"
POD: dict[str, Any] = {
    "metadata": {"name": "newcomer"},
    "spec": {"containers": [{"name": "main", "image": "nodeproof.local/pause:1"}]},
}
OWN = tolerates(UNREACHABLE, 5)
OF_EVERYTHING = {"operator": "Exists"}
OF_ANOTHER_EFFECT = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}
TOLERATIONS: Sequence[Sequence[Mapping[str, Any]]] = ([], [OWN], [OF_EVERYTHING], [OF_ANOTHER_EFFECT])


@needs(nodes=2, components=(SERVER,))
def test_api_server_flags_set_tolerations_of_new_pods(lab: Lab, claim: Expectations) -> None:
    flags = faults.settings(
        SERVER,
        default_unreachable_toleration_seconds=str(UNREACHABLE_S),
        default_not_ready_toleration_seconds=str(NOT_READY_S),
    )
    unreachable, not_ready = tolerates(UNREACHABLE, UNREACHABLE_S), tolerates(NOT_READY, NOT_READY_S)
    with lab.record(), lab.inject(flags):
        bodies = map(pod_with, TOLERATIONS)
        without_own, with_own, tolerant, of_another_effect = (
            lab.run(actions.dry_run("POST", PODS, body)) for body in bodies
        )

    for response, tolerations in (
        (without_own, [unreachable, not_ready]),
        (with_own, [OWN, not_ready]),
        (with_own, {"$not": [unreachable]}),
        (tolerant, [OF_EVERYTHING]),
        (tolerant, {"$not": [unreachable]}),
        (tolerant, {"$not": [not_ready]}),
        (of_another_effect, [OF_ANOTHER_EFFECT, unreachable, not_ready]),
    ):
        pod = {"status": 201, "body": {"spec": {"tolerations": tolerations}}}
        claim("eviction.admission-flags").expect_value(response, pod)


def pod_with(tolerations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {**POD, "spec": {**POD["spec"], "tolerations": list(tolerations)}}
