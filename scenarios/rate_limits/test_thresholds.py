"""From when on a zone counts as disrupted, how large it is then, and how it is evicted: by flags."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    all_came,
    claims,
    condition_became,
    needs,
    no_execute_written,
    outage,
    settings,
    shows,
    spaced,
    try_flags,
    windows,
)

MANAGER = "kube-controller-manager"
LOST, EACH_S, BEFORE_S = 3, 4, 20
"""Three of eight: by default they do not disrupt a zone, and a disrupted one of eight nodes is not evicted.
They are more than three in ten, and as few as can disrupt a zone (ComputeZoneState in
pkg/controller/nodelifecycle/node_lifecycle_controller.go). Until then the zone is evicted so rarely that one
node at the most is, however far apart they are lost: two wait for the reduced rate.
"""
TOLD = {
    "unhealthy_zone_threshold": "0.3",
    "large_cluster_size_threshold": "4",
    "node_eviction_rate": f"{1 / BEFORE_S}",
    "secondary_node_eviction_rate": f"{1 / EACH_S}",
}


@claims("rate-limits.threshold-flags")
@needs(nodes=(8, 3), faulted=LOST, radius="zone", components=(MANAGER,), lasts=f"G + {4 * EACH_S} + 30")
def test_flags_say_when_a_zone_is_disrupted_and_how_it_is_evicted_then(lab: Stage, judge: Judge) -> None:
    lost = [entry for entry in lab.nodes() if entry.name in lab.targets]
    names = [entry.name for entry in lost]
    evicted = no_execute_written(*names)
    all_lost = all_came(*(condition_became(node, "Ready", "Unknown") for node in names))
    rarely = windows.formula("period", f"{EACH_S}", f"{EACH_S} - slack", f"{EACH_S} + 0.6 + slack")

    with lab.record():
        refused = lab.do(try_flags(MANAGER, "--healthy-zone-threshold=0.3"))
        with lab.inject(settings(MANAGER, **TOLD)), lab.inject(outage(*lost)) as cut:
            lab.wait_for(all_lost.after(cut.began, windows.detection_from_fault()))
            rate = spaced(evicted, rarely, at_least=1, after=all_lost, until=cut.healing)
            lab.wait_for(rate)

    judge("rate-limits.threshold-flags", rate)
    unknown = {"status": {"$not": 0}, "stderr": {"$contains": "unknown flag: --healthy-zone-threshold"}}
    judge("rate-limits.threshold-flags", shows(refused, unknown))
