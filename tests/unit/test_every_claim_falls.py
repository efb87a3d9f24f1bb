"""Every shipped claim has a cluster on which its shipped scenario does not conform."""

from __future__ import annotations

from nodeproof import catalogue
from tests.acceptance import test_claims_fall as claims_fall
from tests.acceptance.test_clocks_fall import IN_CLOCKS
from tests.acceptance.test_cloud_fall import IN_CLOUD
from tests.acceptance.test_kubelets_fall import IN_TOLD
from tests.acceptance.test_nodes_fall import (
    IN_BY_HAND,
    IN_JOINED,
    IN_KEPT,
    IN_ONE_WAY,
    IN_OUT_OF_SERVICE,
    IN_RESTARTED,
    IN_SERVICES,
    IN_STARTED,
)
from tests.acceptance.test_pods_fall import IN_CONDITIONS, IN_DELETED, IN_DRAINED, IN_LOST
from tests.acceptance.test_power_falls import IN_POWER_CUT
from tests.acceptance.test_ranges_fall import IN_RANGES
from tests.acceptance.test_rates_fall import IN_LARGE_ZONE, IN_LOST_CLUSTER, IN_LOST_ZONE, IN_RATES

NOT_YET = {"rate-limits.default", "rate-limits.unhealthy-definition", "zones.workload-shifts"}
"""Their checks fall in unit tests, and by those words in other scenarios; a cluster that does otherwise is to
come with the table of sensitivity.
"""


def test_every_shipped_claim_is_made_to_fall() -> None:
    """Those that fall in other files are named; the five minutes fall with the defaults they are made of, the
    six of a forced detach by bugs alone (infra/bugs/out-of-service.yaml): each takes as long.

    What only real machines can prove falls in tests/vm.
    """
    otherwise = claims_fall.test_a_claim_falls_on_a_cluster_that_does_otherwise
    marks = otherwise.pytestmark  # type: ignore[attr-defined]
    fall = {case[0] for mark in marks if mark.name == "parametrize" for case in mark.args[1]}
    for _alter, _scenario, claims, _unharmed in (
        *claims_fall.TOGETHER.values(),
        *claims_fall.LEFT_ALONE.values(),
    ):
        fall |= set(claims)
    elsewhere = {"monitoring.detection-time", "taints.unreachable-noexecute"}
    five_minutes = {f"eviction.after-five-minutes-{name}" for name in ("unreachable", "not-ready")}
    six_minutes = {f"non-graceful.force-detach-{name}" for name in ("timeout", "disable")}

    judged = catalogue.judged(catalogue.load())
    on_machines = {name for name, claim in judged.items() if claim.tier == "machine"}

    together = {*claims_fall.IN_DEFAULTS, *claims_fall.IN_NAMES, *claims_fall.IN_RESTRICTION}
    together |= {f"registration.{name}" for name in claims_fall.IN_JOINING}
    together |= {*claims_fall.IN_FLAGS, "rate-limits.minimum-three"}
    together |= IN_BY_HAND | IN_KEPT | IN_JOINED | IN_ONE_WAY | IN_OUT_OF_SERVICE | IN_RESTARTED | IN_STARTED
    together |= IN_RATES | IN_LARGE_ZONE | IN_LOST_CLUSTER | IN_LOST_ZONE | NOT_YET
    together |= IN_LOST | IN_DELETED | IN_DRAINED | IN_CONDITIONS
    together |= IN_TOLD | IN_RANGES | IN_POWER_CUT | IN_CLOUD | IN_CLOCKS | IN_SERVICES
    assert fall | elsewhere | five_minutes | six_minutes | on_machines | together >= judged.keys()
