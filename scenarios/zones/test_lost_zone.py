"""A zone that is lost completely, while others are healthy."""

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Node, tolerates, workload

LOST, PODS = 8, 6


@needs(nodes=(LOST, 3), faulted=LOST, radius="zone", duration_s=f"G + {LOST}/E + 45")
def test_nodes_of_lost_zone_are_tainted_at_normal_rate(lab: Lab, claim: Expectations) -> None:
    """While the zone goes down it is disrupted, so its first evictions do not show the rate."""
    infos = [entry for entry in lab.nodes() if entry.name in lab.targets]
    nodes, zone = [Node(entry.name) for entry in infos], infos[0].zone
    is_whole = len(nodes) == sum(entry.zone == zone for entry in lab.nodes())
    more = "the zone has nodes that are not targets"
    lab.require_lab(is_whole, otherwise=more, next_step="leave out --nodes")
    normal_rate = claim("zones.full-zone-normal-rate")
    lost = moments.all_of(*(node.unknown for node in nodes))
    tainted = moments.all_of(*(node.taint(UNREACHABLE).added for node in nodes))
    pods = workload("Deployment", replicas=PODS, tolerations=[tolerates(UNREACHABLE, lab.toleration_s)])
    pattern = {"status": {"availableReplicas": PODS}}
    available = moments.became("deployments", pods.name, pattern, pods.namespace)
    shift_s = f"G + 2P + {lab.toleration_s} + {len(nodes)}/E + 60"

    with lab.record(extra_resources=("deployments",)):
        lab.run(pods.make)
        lab.wait_for(available.after(pods.make.begun, 60))
        with lab.inject(faults.outage(*infos)) as fault:
            lab.wait_for(lost.after(fault.injected_at, windows.detection_from_fault()))
            a_pass = windows.absence(lab.configuration["P"] + 1.0)
            lab.wait_for(nodes[0].ready.never_after(lost, a_pass))
            unhealthy = lab.observe(probes.zone_metric("unhealthy_nodes_in_zone", zone))
            normal_rate.expect_value(unhealthy, len(nodes))
            span = {"after": unhealthy.completed, "until": fault.healing_at}
            rate = checks.spaced(moments.no_execute_written(*nodes), windows.spacing(), at_least=2, **span)
            normal_rate.expect(rate)
            normal_rate.expect(tainted, within=f"{len(nodes)}/E + P + 1", after=lost)
            shift = moments.first_after(available, after=lost)
            claim("zones.workload-shifts").expect(shift, within=shift_s, after=fault.injected_at)
