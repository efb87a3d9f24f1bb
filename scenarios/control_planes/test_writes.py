"""Writes, watches and nodes behind the balancer of three control planes, of which one or two lose power.

Each API server uses the member of etcd beside it.
"""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.types import Observation

MANAGER, PLANES = "kube-controller-manager", ("control-plane-1", "control-plane-2", "control-plane-3")
OUTAGE = windows.absence("15")
BEGUN_S, WATCHED_S = 1.0, 24.0
UNANSWERED = windows.formula("negative", f"{WATCHED_S}", f"{BEGUN_S}", f"{BEGUN_S + WATCHED_S}")
"""An acknowledgement may have been under way. An API server without a quorum refuses a write after 7 s, as
etcd gives up; a writer whose connection went with a control plane waits for 15 s.
"""
LOST = windows.absence("L + 4.4Y + G + 3P")
"""A silent node is Unknown by then, even if another controller manager leads first: it counts anew."""
RESUMED = windows.up_to(90.0)
"""The balancer may pass several connections in a row to a control plane without power."""
EVICTED = windows.absence("G + 3P + T")
EVICTED_LATER = windows.absence("L + 4.4Y + G + 3P + T + 1")
"""The pods of such a node are evicted by then."""
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/nodeproof/pods"
OF_NODES = ((NODES, "items[].status.conditions[].lastTransitionTime"), (NODES, "items[].spec.taints[].key"))
OF_PODS = (
    (PODS, "items[].metadata.uid"),
    (PODS, "items[].metadata.deletionTimestamp"),
    (PODS, "items[].status.containerStatuses[].state.running.startedAt"),
)


def stored(lab: Lab, fields: Sequence[tuple[str, str]]) -> Sequence[Observation]:
    """Observe fields of lists, each by path and field."""
    return [lab.observe(probes.field_of(path, field)) for path, field in fields]


@needs(nodes=2, components=("control-plane",), control_planes=3, duration_s="60")
def test_writes_survive_the_loss_of_a_control_plane(lab: Lab, claim: Expectations) -> None:
    namespace = actions.new_namespace()
    with lab.record():
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        leader = str(lab.observe(probes.etcd_leader()).value)
        with lab.inject(faults.power_off(leader)) as fault:
            acknowledged = moments.write_acknowledged(namespace.name)
            meanwhile = moments.first_after(acknowledged, after=fault.injected_at)
            claim("control-planes.writes-go-on").expect(meanwhile, after=fault.injected_at)
            # Writes that the lost member has to catch up with.
            lab.wait_for(fault.healed_at.never_after(fault.injected_at, OUTAGE))
        for plane in PLANES:
            names = lab.observe(probes.config_maps(namespace.name, plane))
            claim("control-planes.no-lost-write").expect_later(checks.has_writes(names))


@needs(
    nodes=2,
    components=("control-plane",),
    control_planes=3,
    radius="cluster",
    duration_s="L + 5Y + 2G + 6P + 2T + 60",
)
def test_nothing_changes_without_a_quorum(lab: Lab, claim: Expectations) -> None:
    """The controller manager that leads stays: it must not act on the heartbeats that it missed."""
    namespace = actions.new_namespace()
    with lab.record():
        for node in (lab.target, *lab.others):
            lab.run(actions.run_pod(on=node))
        before = stored(lab, OF_NODES + OF_PODS)
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        leader = lab.observe(probes.leader(MANAGER)).value
        first, second = (plane for plane in PLANES if plane != leader)
        with lab.inject(faults.power_off(first)), lab.inject(faults.power_off(second)) as fault:
            acknowledged = moments.write_acknowledged(namespace.name)
            lost = claim("control-planes.majority-lost")
            lost.never(acknowledged, throughout=UNANSWERED, after=fault.injected_at)
            refused = moments.first_after(moments.write_refused(namespace.name), after=fault.injected_at)
            lab.require(refused, within_s=WATCHED_S, after=fault.injected_at)
            lab.wait_for(fault.healed_at.never_after(fault.injected_at, EVICTED))
        lab.wait_for(lab.target.unknown.never_after(fault.healed_at, EVICTED_LATER))
        for earlier, later in zip(before, stored(lab, OF_NODES + OF_PODS), strict=True):
            claim("control-planes.majority-lost-keeps-pods").expect_later(checks.same_as(later, earlier))


@needs(nodes=2, components=("control-plane",), control_planes=3, duration_s="3L + 15Y + 3G + 9P + 60")
def test_watch_and_kubelets_go_on_at_another_api_server(lab: Lab, claim: Expectations) -> None:
    """Each control plane loses power in turn: one of them serves the watch, and one each kubelet."""
    namespace = actions.new_namespace()
    with lab.record(extra_resources=["configmaps"]):
        before = stored(lab, OF_NODES)
        watched = moments.written("configmaps", {"metadata": {"namespace": namespace.name}})
        lab.run(namespace.make)
        lab.run(actions.write_repeatedly(namespace.name))
        for plane in PLANES:
            with lab.inject(faults.power_off(plane)) as fault:
                lab.wait_for(lab.target.unknown.never_after(fault.injected_at, LOST))
                # Its API server will know no event from before its start: the watch must resume elsewhere.
                event = moments.first_after(watched, after=fault.injected_at)
                lab.wait_for(event.after(fault.injected_at, RESUMED))
            lab.observe(probes.config_maps(namespace.name, plane))
        claim("control-planes.no-lost-event").expect_later(checks.watched_writes(namespace.name))
        for earlier, later in zip(before, stored(lab, OF_NODES), strict=True):
            claim("control-planes.kubelets-go-on").expect_later(checks.same_as(later, earlier))
