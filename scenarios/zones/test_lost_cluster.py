"""A cluster whose zones are all down: the control plane assumes its own failure and evicts no pod."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, UNREACHABLE, ZONE_LABEL, Node, Pod
from nodeproof.scenario.types import Moment, NodeInfo

MANAGER = "kube-controller-manager"


def loss_of(nodes: list[Node]) -> Moment:
    return moments.all_of(*(node.unknown for node in nodes))


def taints_of(nodes: list[Node]) -> Moment:
    return moments.all_of(*(node.taint(UNREACHABLE).added for node in nodes))


@needs(nodes=(8, 3), faulted=(8, 3), radius="cluster", duration_s="2G + 10/E + 50")
def test_no_pod_is_evicted_while_all_zones_are_down(lab: Lab, claim: Expectations) -> None:
    """Most of one zone is lost, which stops its evictions; all of the other zone is lost, which does not."""
    home = lab.nodes()[0].zone
    *others, last_entry, excluded = [entry for entry in lab.nodes() if entry.zone == home]
    last = Node(last_entry.name)
    far = [Node(entry.name) for entry in lab.nodes() if entry.zone != home]
    is_lost = {entry.name for entry in others} | {str(node) for node in far}
    lost = [entry for entry in lab.nodes() if entry.name in is_lost]
    names = [Node(entry.name) for entry in lost]
    taint_writes = moments.no_execute_written(*names)
    tolerated_s = round(len(far) / lab.configuration["E"] + 8)
    pod = lab.run(actions.run_pod(on=far[0], tolerates_unreachable_s=tolerated_s))
    cancellation = pod.event("TaintManagerEviction", "Cancelling deletion of Pod")
    label = "node.kubernetes.io/exclude-disruption"
    exclusion = faults.set_label(label, "false", {excluded.name: None})
    untaints, no_evictions = claim("zones.all-down-untaints"), claim("zones.all-down-no-evictions")
    exclude_label = claim("zones.exclude-disruption-label")

    with lab.record(), lab.inject(exclusion), lab.inject(faults.outage(*lost)) as fault:
        lab.wait_for(loss_of(names).after(fault.injected_at, windows.detection_from_fault()))
        lab.wait_for(taints_of(far).after(loss_of(far), f"{len(far)}/E + P + 1"))
        with lab.inject(faults.patch_ready(last)) as all_down:
            for node in far:
                untainted = moments.untainted(node, "NoExecute")
                check = untaints.expect(untainted, within=windows.monitor_pass(), after=last.not_ready)
                exclude_label.expect_later(check)
            no_evictions.never(taint_writes, throughout=windows.stopped(), after=last.not_ready)
            size = lab.observe(probes.zone_metric("zone_size", home))
            exclude_label.expect_value(size, len(others) + 1)
            kept = no_evictions.never(pod.deletion, throughout=tolerated_s, after=last.not_ready)
            untaints.expect_later(kept)
            untaints.expect_later(cancellation, within=windows.monitor_pass(), after=last.not_ready)
        back = moments.first_after(last.ready, after=all_down.healing_at)
        expect_evictions(claim, taint_writes, far, pod, tolerated_s, back)
        expect_new_grace_period(lab, claim, last, excluded)


def expect_evictions(
    claim: Expectations, taint_writes: Moment, far: list[Node], pod: Pod, tolerated_s: int, back: Moment
) -> None:
    """Expect evictions at the zone's rate from `back` on, when a node is Ready again."""
    recovery_resumes = claim("zones.recovery-resumes")
    # A limiter that replaces one that refuses starts without a token.
    resumption = windows.formula("within", "1/E + 2P + 1", "1/E - slack", "1/E + 2P + 1 + slack")
    tainted_again = moments.first_after(far[0].taint(UNREACHABLE).added, after=back)
    recovery_resumes.expect(moments.first_after(taint_writes, after=back), within=resumption, after=back)
    span = {"after": back, "until": pod.deletion}
    rate = checks.spaced(taint_writes, windows.spacing(), at_least=len(far) - 1, **span)
    recovery_resumes.expect(rate)
    recovery_resumes.expect(pod.deletion, within=windows.toleration(tolerated_s), after=tainted_again)


def expect_new_grace_period(lab: Lab, claim: Expectations, last: Node, excluded: NodeInfo) -> None:
    """Expect a full grace period for a node that fell silent just before all zones were down."""
    grace_s, renewal_s, pass_s = (lab.configuration[symbol] for symbol in ("G", "R", "P"))
    unknown = Node(excluded.name).unknown
    grace_period = windows.formula("period", "G", "G - slack", "G + 2P + 1 + slack")
    with lab.inject(faults.outage(excluded)) as silence:
        with lab.inject(faults.patch_ready(last)) as all_down:
            lab.wait_for(unknown.never_after(all_down.injected_at, pass_s + 1))
        back = moments.first_after(last.ready, after=all_down.healing_at)
        lab.wait_for(back.after(all_down.healing_at, grace_s))
        # The pass that ends the all-down state first marks nodes whose grace period is over.
        due_s = grace_s - renewal_s - pass_s
        lab.check_not_due(unknown, change=back, since=silence.injected_at, due_s=due_s)
        claim("zones.exit-resets-probe-time").expect(unknown, within=grace_period, after=back)


@needs(
    nodes=3, faulted=3, radius="cluster", components=(MANAGER,), duration_s="G + 2.4/E2 + 2P + 45",
)  # fmt: skip
def test_no_pod_is_evicted_while_single_zone_cluster_is_down(lab: Lab, claim: Expectations) -> None:
    """Two lost nodes of three do not disrupt the zone: they are evicted until the third one is lost.

    A controller manager that starts then has never seen a healthy node.
    """
    entries, single_zone = lab.nodes(), claim("zones.single-zone-cluster")
    other_size = "the lab does not have three nodes"
    lab.require_lab(len(entries) == 3, otherwise=other_size, next_step="leave out --nodes")
    one, other, last = (Node(entry.name) for entry in entries)
    tainted = one.taint(NOT_READY).added
    taint_writes = moments.no_execute_written(one, other, last)
    without_zones = faults.set_label(ZONE_LABEL, None, {entry.name: entry.zone for entry in entries})

    with lab.record(), lab.inject(without_zones), lab.inject(faults.patch_ready(one)):
        lab.wait_for(tainted.after(one.not_ready, windows.taint_pass()))
        with lab.inject(faults.outage(entries[1])) as fault:
            lab.wait_for(loss_of([other]).after(fault.injected_at, windows.detection_from_fault()))
            both_tainted = moments.all_of(tainted, taints_of([other]))
            lab.wait_for(both_tainted.after(loss_of([other]), "max(P, 1/E) + 1/E + 1"))
            with lab.inject(faults.patch_ready(last)):
                for node in (one, other):
                    untainted = moments.untainted(node, "NoExecute")
                    single_zone.expect(untainted, within=windows.monitor_pass(), after=last.not_ready)
                single_zone.never(taint_writes, throughout=windows.stopped(), after=last.not_ready)
                with lab.inject(faults.settings(MANAGER, v="1")) as restart:
                    started = moments.first_after(last.event("RegisteredNode"), after=restart.injected_at)
                    single_zone.never(taint_writes, throughout=windows.stopped(), after=started)
