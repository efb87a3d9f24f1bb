"""A cluster that is lost whole: its control plane takes that for its own fault, and evicts nobody."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    UNREACHABLE,
    ZONE_LABEL,
    Check,
    Moment,
    Stage,
    all_came,
    claims,
    condition_became,
    event_reported,
    labelled,
    metric,
    needs,
    next_of,
    no_execute_written,
    outage,
    pod_deletion,
    ready_patched,
    run_pod,
    shows,
    spaced,
    taint_added,
    untainted,
    windows,
)

EXCLUDED = "node.kubernetes.io/exclude-disruption"
SIZE = "node_collector_zone_size"
SECOND = "max(P, 1/E) + 1/E + 1"
CANCELLED = "Cancelling deletion of Pod"


def are_lost(*nodes: str) -> Moment:
    return all_came(*(condition_became(node, "Ready", "Unknown") for node in nodes))


def are_tainted(*nodes: str) -> Moment:
    return all_came(*(taint_added(node, UNREACHABLE, "NoExecute") for node in nodes))


def have_their_taints_removed(nodes: list[str], all_down: Moment) -> list[Check]:
    return [untainted(node, "NoExecute").after(all_down, windows.monitor_pass()) for node in nodes]


@claims(
    "zones.all-down-no-evictions",
    "zones.all-down-untaints",
    "zones.exclude-disruption-label",
    "zones.recovery-resumes",
    "zones.exit-resets-probe-time",
)
@needs(nodes=(8, 3), faulted=(8, 3), radius="cluster", lasts="2G + 10/E + 50")
def test_a_cluster_that_is_lost_whole_evicts_nobody_until_a_node_is_back(lab: Stage, judge: Judge) -> None:
    """One zone is lost for the greater part, which stops its evictions; the other whole, which does not."""
    home = lab.nodes()[0].zone
    *lost, last, excluded = [entry for entry in lab.nodes() if entry.zone == home]
    far = [entry.name for entry in lab.nodes() if entry.zone != home]
    gone = [entry for entry in lab.nodes() if entry in lost or entry.name in far]
    names = [entry.name for entry in gone]
    tolerated_s = round(len(far) / lab.configuration["E"] + 8)
    pod = lab.do(run_pod(on=far[0], tolerates_unreachable_s=tolerated_s))
    deletion = pod_deletion(pod.namespace, pod.name)
    evicted = no_execute_written(*names)
    in_far = f"{len(far)}/E + P + 1"
    anew = windows.formula("period", "G", "G - slack", "G + 2P + 1 + slack")
    # A limiter that takes over from one that refuses has no token.
    resumption = windows.formula("within", "1/E + 2P + 1", "1/E - slack", "1/E + 2P + 1 + slack")
    left_out = labelled(EXCLUDED, "true", {excluded.name: None})

    with lab.record(), lab.inject(left_out), lab.inject(outage(*gone)) as cut:
        lab.wait_for(are_lost(*names).after(cut.began, windows.detection_from_fault()))
        all_tainted = windows.formula("within", in_far, "-slack", f"{in_far} + slack")
        lab.wait_for(are_tainted(*far).after(are_lost(*far), all_tainted))

        down = condition_became(last.name, "Ready", "False")
        with lab.inject(ready_patched(last.name)) as first:
            taints_go = [lab.wait_for(check) for check in have_their_taints_removed(far, down)]
            nobody = lab.wait_for(evicted.never_after(down, windows.stopped()))
            size = lab.look(metric("kube-controller-manager", SIZE, zone=f":\x00:{home}"))
            kept = lab.wait_for(deletion.never_after(down, windows.absence(tolerated_s)))
        back = next_of(condition_became(last.name, "Ready", "True"), after=first.healing)
        again = next_of(taint_added(far[0], UNREACHABLE, "NoExecute"), after=back)
        first_again = lab.wait_for(next_of(evicted, after=back).after(back, resumption))
        resumed = spaced(evicted, windows.spacing(), at_least=len(far) - 1, after=back, until=deletion)
        lab.wait_for(resumed)
        leaves = lab.wait_for(deletion.after(again, windows.toleration(tolerated_s)))

        with lab.inject(outage(excluded)) as silence:
            silent = condition_became(excluded.name, "Ready", "Unknown")
            lab.wait_for(silent.never_after(silence.began, windows.absence(lab.configuration["R"] / 2)))
            with lab.inject(ready_patched(last.name)) as second:
                a_pass = windows.absence(lab.configuration["P"] + 1)
                lab.wait_for(silent.never_after(second.began, a_pass))
            left = next_of(condition_became(last.name, "Ready", "True"), after=second.healing)
            lab.check_not_due(
                silent, since=silence.began, due_s=lab.configuration["G"] - lab.configuration["R"]
            )
            later = lab.wait_for(silent.after(left, anew))

    said = event_reported("TaintManagerEviction", "Pod", pod.name, CANCELLED)
    cancelled = said.after(down, windows.monitor_pass())
    for check in (nobody, kept):
        judge("zones.all-down-no-evictions", check)
    for check in (*taints_go, kept, cancelled):
        judge("zones.all-down-untaints", check)
    for check in (shows(size, len(lost) + 1), *taints_go):
        judge("zones.exclude-disruption-label", check)
    for check in (first_again, resumed, leaves):
        judge("zones.recovery-resumes", check)
    judge("zones.exit-resets-probe-time", later)


@claims("zones.single-zone-cluster")
@needs(nodes=3, faulted=3, radius="cluster", lasts="G + 1.2/E2 + 25")
def test_a_cluster_of_no_zones_that_is_lost_whole_evicts_nobody(lab: Stage, judge: Judge) -> None:
    """Two lost nodes of three are no disruption: they are evicted until the third is lost, too."""
    lab.expect(len(lab.nodes()) == 3, "a lab of three nodes", "leave out --nodes")
    one, other, last = lab.nodes()
    tainted = taint_added(one.name, NOT_READY, "NoExecute")
    both = all_came(tainted, are_tainted(other.name))
    second = windows.formula("within", SECOND, "-slack", f"{SECOND} + slack")
    evicted = no_execute_written(*(entry.name for entry in lab.nodes()))
    down = condition_became(last.name, "Ready", "False")

    with (
        lab.record(),
        lab.inject(labelled(ZONE_LABEL, None, {entry.name: entry.zone for entry in lab.nodes()})),
        lab.inject(ready_patched(one.name)),
    ):
        not_ready = condition_became(one.name, "Ready", "False")
        lab.wait_for(tainted.after(not_ready, windows.taint_pass()))
        with lab.inject(outage(other)) as cut:
            lab.wait_for(are_lost(other.name).after(cut.began, windows.detection_from_fault()))
            lab.wait_for(both.after(are_lost(other.name), second))
            with lab.inject(ready_patched(last.name)):
                names = [one.name, other.name]
                taints_go = [lab.wait_for(check) for check in have_their_taints_removed(names, down)]
                nobody = lab.wait_for(evicted.never_after(down, windows.stopped()))

    for check in (*taints_go, nobody):
        judge("zones.single-zone-cluster", check)
