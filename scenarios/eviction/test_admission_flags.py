"""How long pods tolerate an unreachable node, where the API server was told otherwise."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    UNREACHABLE,
    Stage,
    claims,
    needs,
    settings,
    shows,
    tolerates,
    would,
)

SERVER = "kube-apiserver"
OTHER_S = {UNREACHABLE: 21, NOT_READY: 23}
PODS = "/api/v1/namespaces/nodeproof/pods"
POD: dict[str, Any] = {
    "metadata": {"name": "newcomer"},
    "spec": {"containers": [{"name": "main", "image": "nodeproof.local/pause:1"}]},
}
OWN = tolerates(UNREACHABLE, 5)
IMPATIENT = {**POD, "spec": {**POD["spec"], "tolerations": [OWN]}}


@claims("eviction.admission-flags")
@needs(nodes=2, components=(SERVER,))
def test_new_pods_tolerate_as_long_as_the_api_servers_flags_say(lab: Stage, judge: Judge) -> None:
    told = settings(
        SERVER,
        default_unreachable_toleration_seconds=str(OTHER_S[UNREACHABLE]),
        default_not_ready_toleration_seconds=str(OTHER_S[NOT_READY]),
    )
    with lab.record(), lab.inject(told):
        newcomer, impatient = (lab.do(would("POST", PODS, pod)) for pod in (POD, IMPATIENT))

    given = {key: tolerates(key, seconds) for key, seconds in OTHER_S.items()}
    for answer, tolerations in (
        (newcomer, list(given.values())),
        (impatient, [OWN, given[NOT_READY]]),
        (impatient, {"$not": [given[UNREACHABLE]]}),
    ):
        told_so = {"status": 201, "body": {"spec": {"tolerations": tolerations}}}
        judge("eviction.admission-flags", shows(answer, told_so))
