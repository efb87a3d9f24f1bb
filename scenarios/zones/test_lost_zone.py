"""A zone that is lost whole, while others are well."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE,
    Stage,
    all_came,
    became,
    claims,
    condition_became,
    metric,
    needs,
    next_of,
    no_execute_written,
    outage,
    shows,
    spaced,
    taint_added,
    tolerates,
    windows,
    workload,
)

LOST, PODS = 8, 6
UNHEALTHY = "node_collector_unhealthy_nodes_in_zone"


@claims("zones.full-zone-normal-rate", "zones.workload-shifts")
@needs(nodes=(LOST, 3), faulted=LOST, radius="zone", lasts=f"G + {LOST}/E + 45")
def test_a_zone_that_is_lost_whole_is_evicted_at_the_normal_rate(lab: Stage, judge: Judge) -> None:
    """On its way down it is disrupted, so that its first evictions say nothing about the rate."""
    nodes = [entry for entry in lab.nodes() if entry.name in lab.targets]
    names = [entry.name for entry in nodes]
    home, count = nodes[0].zone, len(nodes)
    lab.expect(
        count == sum(entry.zone == home for entry in lab.nodes()), "a zone to lose", "leave out --nodes"
    )
    evicted = no_execute_written(*names)
    all_lost = all_came(*(condition_became(node, "Ready", "Unknown") for node in names))
    all_tainted = all_came(*(taint_added(node, UNREACHABLE, "NoExecute") for node in names))
    at_most = f"{count}/E + P + 1"
    pods = workload("Deployment", replicas=PODS, tolerations=[tolerates(UNREACHABLE, lab.toleration_s)])
    available = became("deployments", pods.name, {"status": {"availableReplicas": PODS}}, pods.namespace)
    shift = f"G + 2P + {lab.toleration_s} + {count}/E + 60"

    with lab.record(also=("deployments",)):
        lab.do(pods.make)
        lab.wait_for(available.after(pods.make.begun, windows.prompt(60)))
        with lab.inject(outage(*nodes)) as cut:
            lab.wait_for(all_lost.after(cut.began, windows.detection_from_fault()))
            a_pass = windows.absence(lab.configuration["P"] + 1.0)
            lab.wait_for(condition_became(names[0], "Ready", "True").never_after(all_lost, a_pass))
            seen = lab.look(metric("kube-controller-manager", UNHEALTHY, zone=f":\x00:{home}"))
            rate = spaced(evicted, windows.spacing(), at_least=2, after=seen.came, until=cut.healing)
            lab.wait_for(rate)
            within = windows.formula("within", at_most, "-slack", f"{at_most} + slack")
            whole = lab.wait_for(all_tainted.after(all_lost, within))
            again = next_of(available, after=all_lost)
            shifted = again.after(cut.began, windows.formula("within", shift, "-slack", f"{shift} + slack"))
            lab.wait_for(shifted)

    for check in (rate, whole, shows(seen, count)):
        judge("zones.full-zone-normal-rate", check)
    judge("zones.workload-shifts", shifted)
