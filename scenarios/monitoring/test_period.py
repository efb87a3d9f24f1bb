"""Period of the node controller's passes."""

from nodeproof.scenario import Expectations, Lab, checks, moments, needs, probes, windows

MANAGER, LOOKS = "kube-controller-manager", "node_collector_update_all_nodes_health_duration_seconds_count"
PERIODS = 12


@needs(nodes=2, duration_s="12P + 3")
def test_node_monitor_runs_once_per_configured_period(lab: Lab, claim: Expectations) -> None:
    """The controller's own metric counts one pass a period; its flag gives the period."""
    looks, period_s = probes.metric(MANAGER, LOOKS), lab.configuration["P"]

    with lab.record():
        flag = lab.observe(probes.flag_of(MANAGER, "node-monitor-period"))
        no_flag, next_step = f"{MANAGER} has no --node-monitor-period", "run it in the profile `fast`"
        lab.require_lab(flag.value is not None, otherwise=no_flag, next_step=next_step)
        spellings = {"$in": [f"{period_s:g}s", f"{period_s * 1000:g}ms"]}
        claim("monitoring.period-configurable").expect_value(flag, spellings)
        before = lab.observe(looks)
        periods = windows.absence(PERIODS * period_s)
        lab.wait_for(lab.target.removed.never_after(moments.recording_began(), periods))
        count = checks.grew(before, lab.observe(looks), 0.75 * PERIODS, 1.25 * PERIODS)
        claim("monitoring.period-configurable").expect_later(count)
