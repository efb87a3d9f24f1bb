"""Flags for the disruption threshold, the zone size and the eviction rates."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import Node

MANAGER = "kube-controller-manager"
LOST, REDUCED_S, NORMAL_S = 3, 4, 20
"""Three of eight nodes: by default they do not disrupt a zone, and a disrupted zone of eight nodes is not
evicted. They are more than three in ten, and the fewest that can disrupt a zone (ComputeZoneState in
pkg/controller/nodelifecycle/node_lifecycle_controller.go). Before that, the zone's rate is so low that at
most one node is evicted, however far apart they are lost: two wait for the reduced rate.
"""
FLAGS = {
    "unhealthy_zone_threshold": "0.3",
    "large_cluster_size_threshold": "4",
    "node_eviction_rate": f"{1 / NORMAL_S}",
    "secondary_node_eviction_rate": f"{1 / REDUCED_S}",
}


@needs(
    nodes=(8, 3), faulted=LOST, radius="zone", components=(MANAGER,), duration_s=f"G + {4 * REDUCED_S} + 30"
)
def test_flags_set_disruption_thresholds_and_eviction_rate(lab: Lab, claim: Expectations) -> None:
    infos = [entry for entry in lab.nodes() if entry.name in lab.targets]
    nodes = [Node(entry.name) for entry in infos]
    lost = moments.all_of(*(node.unknown for node in nodes))
    reduced = windows.formula("period", f"{REDUCED_S}", f"{REDUCED_S} - slack", f"{REDUCED_S} + 0.6 + slack")

    with lab.record():
        end = lab.run(actions.try_flags(MANAGER, "--healthy-zone-threshold=0.3"))
        unknown = {"status": {"$not": 0}, "stderr": {"$contains": "unknown flag: --healthy-zone-threshold"}}
        claim("rate-limits.threshold-flags").expect_value(end, unknown)
        with lab.inject(faults.settings(MANAGER, **FLAGS)), lab.inject(faults.outage(*infos)) as fault:
            lab.wait_for(lost.after(fault.injected_at, windows.detection_from_fault()))
            span = {"after": lost, "until": fault.healing_at}
            rate = checks.spaced(moments.no_execute_written(*nodes), reduced, at_least=1, **span)
            claim("rate-limits.threshold-flags").expect(rate)
