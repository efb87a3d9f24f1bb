"""Defaults of the node monitor, as the running components report them."""

from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, default_of, needs


@claims("monitoring.grace-period-default", "monitoring.period-default")
@needs(nodes=2)
def test_grace_period_of_a_controller_manager_without_flags(lab: Stage, judge: Judge) -> None:
    with lab.record():
        judge("monitoring.grace-period-default", default_of("node-monitor-grace-period"))
        judge("monitoring.period-default", default_of("node-monitor-period"))
