"""Writes through the balancer of three control planes, of which one or two lose power.

Each API server uses the member of etcd beside it.
"""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows

PLANES = ("control-plane-1", "control-plane-2", "control-plane-3")
OUTAGE = windows.absence_for("15")
WATCHED_S = 20.0
UNANSWERED = windows.formula("negative", f"{WATCHED_S}", "5", f"{WATCHED_S + 5}")
"""An acknowledgement may have been under way. In 20 s an API server without a quorum refuses several writes:
etcd gives up after 7 s.
"""


@needs(nodes=2, components=("control-plane",), control_planes=3, duration_s="60")
def test_writes_survive_the_loss_of_a_control_plane(lab: Lab, claim: Expectations) -> None:
    namespace = actions.new_namespace()
    with lab.record():
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        leader = str(lab.observe(probes.etcd_leader()).value)
        with lab.inject(faults.power_off(leader)) as fault:
            # Writes that the lost member has to catch up with.
            lab.wait_for(fault.healed_at.never_after(fault.injected_at, OUTAGE))
        for plane in PLANES:
            names = lab.observe(probes.config_maps(namespace.name, plane))
            claim("control-planes.no-lost-write").expect_later(checks.has_writes(names))


@needs(nodes=2, components=("control-plane",), control_planes=3, radius="cluster", duration_s="90")
def test_no_write_is_acknowledged_without_a_quorum(lab: Lab, claim: Expectations) -> None:
    namespace = actions.new_namespace()
    first, second, _survivor = PLANES
    with lab.record():
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        with lab.inject(faults.power_off(first)), lab.inject(faults.power_off(second)) as fault:
            acknowledged = moments.write_acknowledged(namespace.name)
            claim("control-planes.majority-lost").never(
                acknowledged, throughout=UNANSWERED, after=fault.injected_at
            )
            failed = moments.first_after(moments.write_failed(namespace.name), after=fault.injected_at)
            lab.require(failed, within_s=WATCHED_S, after=fault.injected_at)
