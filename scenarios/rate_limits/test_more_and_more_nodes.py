"""A zone that loses more and more of its nodes, and the rate at which those are evicted."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    UNREACHABLE,
    ZONE_LABEL,
    Check,
    Stage,
    all_came,
    claims,
    condition_became,
    default_of,
    labelled,
    metric,
    needs,
    no_execute_written,
    outage,
    ready_patched,
    shows,
    spaced,
    taint_added,
    windows,
)

MANAGER = "kube-controller-manager"
UNHEALTHY, HEALTH = "node_collector_unhealthy_nodes_in_zone", "node_collector_zone_health"
SECOND = "max(P, 1/E) + 1/E + 1"
LIMITS = (
    "rate-limits.limits-taints-not-pods",
    "rate-limits.partial-threshold",
    "rate-limits.small-stops",
    "rate-limits.threshold-is-per-zone",
    "rate-limits.unhealthy-definition",
    "zones.per-zone-policy",
)


def is_evicted_node_by_node_until_55_percent_are_lost(
    lab: Stage, judge: Judge, rate: str, size: int, before: int, later: int
) -> None:
    """`rate` is the claim about the figure, `size` that of the zone, whose other nodes are in another one;
    so many gaps are waited for, `before` the zone is disrupted and `later`, when it is not any more.
    """
    home = lab.nodes()[0].zone
    at_home = [entry for entry in lab.nodes() if entry.zone == home]
    away, staying = at_home[:-size], at_home[-size:]
    zone = [entry.name for entry in staying]
    *lost, last = staying[: 55 * size // 100]
    others = [name for name in lab.targets if name not in [entry.name for entry in at_home]]
    lab.expect(size <= len(at_home) and len(lab.nodes()) > 50, "a large cluster", "leave out --nodes")
    elsewhere = labelled(ZONE_LABEL, "elsewhere", {entry.name: home for entry in away})

    evicted = no_execute_written(*zone)
    unknown = [condition_became(node.name, "Ready", "Unknown") for node in lost]
    all_lost = all_came(*unknown)
    unscheduled = [taint_added(node.name, UNREACHABLE, "NoSchedule") for node in lost]
    disrupted, well = (condition_became(last.name, "Ready", status) for status in ("False", "True"))

    with lab.record(), lab.inject(elsewhere), lab.inject(outage(*lost)) as cut:
        for moment in unknown:
            lab.wait_for(moment.after(cut.began, windows.detection_from_fault()))
        at_once = [
            lab.wait_for(taint.after(moment, windows.prompt(2)))
            for taint, moment in zip(unscheduled, unknown, strict=True)
        ]
        normal = spaced(evicted, windows.spacing(), at_least=before, after=all_lost, until=disrupted)
        lab.wait_for(normal)
        with lab.inject(ready_patched(last.name)):
            stopped = lab.wait_for(evicted.never_after(disrupted, windows.stopped()))
            counts = [lab.look(metric(MANAGER, name, zone=f":\x00:{home}")) for name in (UNHEALTHY, HEALTH)]
            with lab.inject(ready_patched(others[0])), lab.inject(ready_patched(others[1])):
                beside = [lab.wait_for(check) for check in are_tainted(*others)]
        resumed = spaced(evicted, windows.spacing(), at_least=later, after=well, until=cut.healing)
        lab.wait_for(resumed)

    judge("rate-limits.limits-taints-not-pods", normal)
    judge(rate, normal)
    judge(rate, resumed)
    for check in at_once:
        judge(rate, check)
    for claim in ("partial-threshold", "small-stops", "threshold-is-per-zone"):
        for check in (normal, stopped):
            judge(f"rate-limits.{claim}", check)
    for seen, value in zip(counts, (len(lost) + 1, 45.0), strict=True):
        judge("rate-limits.unhealthy-definition", shows(seen, value))
    for check in (stopped, *beside):
        judge("zones.per-zone-policy", check)


def are_tainted(one: str, other: str) -> list[Check]:
    """Both nodes of another zone, which are not ready at about the same time."""
    second = windows.formula("within", SECOND, "-slack", f"{SECOND} + slack")
    return [
        taint_added(node, NOT_READY, "NoExecute").after(condition_became(node, "Ready", "False"), window)
        for node, window in ((one, windows.taint_pass()), (other, second))
    ]


@claims("rate-limits.flag", *LIMITS)
@needs(nodes=(50, 2), faulted=(32, 2), radius="zone", profile="fast", lasts="G + 8/E + 20")
def test_evictions_of_a_zone_come_at_the_rate_of_the_flag_until_55_percent_are_lost(
    lab: Stage, judge: Judge
) -> None:
    is_evicted_node_by_node_until_55_percent_are_lost(lab, judge, "rate-limits.flag", 40, 4, 4)


@claims("rate-limits.default", *LIMITS)
@needs(nodes=(49, 2), faulted=(40, 2), radius="zone", profile="documented", lasts="G + 7/E + 1.2/E2")
def test_evictions_of_a_zone_come_every_ten_seconds_until_55_percent_are_lost(
    lab: Stage, judge: Judge
) -> None:
    is_evicted_node_by_node_until_55_percent_are_lost(lab, judge, "rate-limits.default", 20, 2, 1)
    judge("rate-limits.default", default_of("node-eviction-rate"))
