"""Defaults of a kubelet, which hold where its configuration says nothing else."""

from nodeproof.scenario import Expectations, Lab, checks, needs, probes

PERIODS = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")


@needs(nodes=2)
def test_kubelet_has_its_documented_defaults(lab: Lab, claim: Expectations) -> None:
    with lab.record():
        capacity = lab.observe(probes.node_field(lab.target, "status.capacity.pods"))
        claim("capacity.max-pods").expect_value(capacity, "110")
        claim("capacity.max-pods").expect_later(checks.default_of("maxPods"))
        damping = checks.default_of("evictionPressureTransitionPeriod")
        claim("conditions.pressure-damping-default").expect_later(damping)
        for period in PERIODS:
            claim("graceful-shutdown.default-periods").expect_later(checks.default_of(period))
