"""Writes through the balancer of three control planes, of which one or two lose power.

Each API server uses the member of etcd beside it.
"""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows

PLANES = ("control-plane-1", "control-plane-2", "control-plane-3")
OUTAGE = windows.absence_for("15")
BEGUN_S, WATCHED_S = 1.0, 24.0
UNANSWERED = windows.formula("negative", f"{WATCHED_S}", f"{BEGUN_S}", f"{BEGUN_S + WATCHED_S}")
"""An acknowledgement may have been under way. An API server without a quorum refuses a write after 7 s, as
etcd gives up; a writer whose connection went with a control plane waits for 15 s.
"""


@needs(nodes=2, components=("control-plane",), control_planes=3, duration_s="60")
def test_writes_survive_the_loss_of_a_control_plane(lab: Lab, claim: Expectations) -> None:
    namespace = actions.new_namespace()
    with lab.record():
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        leader = str(lab.observe(probes.etcd_leader()).value)
        with lab.inject(faults.power_off(leader)) as fault:
            meanwhile = moments.first_after(
                moments.write_acknowledged(namespace.name), after=fault.injected_at
            )
            claim("control-planes.writes-go-on").expect(meanwhile, after=fault.injected_at)
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
            refused = moments.first_after(moments.write_refused(namespace.name), after=fault.injected_at)
            lab.require(refused, within_s=WATCHED_S, after=fault.injected_at)
