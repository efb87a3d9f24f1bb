"""Defaults of the node monitor, as the running components report them."""

from nodeproof.scenario import Expectations, Lab, checks, needs


@needs(nodes=2)
def test_node_monitor_has_default_period_and_grace_period(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        claim("monitoring.grace-period-default").expect_later(checks.default_of("node-monitor-grace-period"))
        claim("monitoring.period-default").expect_later(checks.default_of("node-monitor-period"))
