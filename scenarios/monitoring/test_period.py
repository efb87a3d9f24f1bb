"""How often the node controller looks at all nodes."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    claims,
    flag_of,
    grew,
    metric,
    needs,
    recording_began,
    removed,
    shows,
    windows,
)

MANAGER, LOOKS = "kube-controller-manager", "node_collector_update_all_nodes_health_duration_seconds_count"
PERIODS = 12


@claims("monitoring.period-configurable")
@needs(nodes=2, lasts="12P + 3")
def test_the_node_controller_looks_at_all_nodes_once_a_period(lab: Stage, judge: Judge) -> None:
    """By its own count; its flag says how long a period is, and not what it makes of that."""
    counted, told_s = metric(MANAGER, LOOKS), lab.configuration["P"]

    with lab.record():
        told = lab.look(flag_of(MANAGER, "node-monitor-period"))
        lab.expect(told.value is not None, "told a --node-monitor-period", "run it in the profile `fast`")
        before = lab.look(counted)
        periods = windows.absence(PERIODS * told_s)
        lab.wait_for(removed("nodes", lab.target).never_after(recording_began(), periods))
        looks = grew(before, lab.look(counted), 0.75 * PERIODS, 1.25 * PERIODS)

    for check in (shows(told, f"{told_s:g}s"), looks):
        judge("monitoring.period-configurable", check)
