"""Nodes of a cluster with a cloud whose machines are shut down or gone.

The scenario runs the upstream cloud-controller-manager, and sets the cloud's answer for each machine.
"""

from collections.abc import Mapping
from contextlib import ExitStack

from nodeproof.model.quantity import duration_s
from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import CLOUD, Node
from nodeproof.scenario.sources import CloudCalls

SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
KEPT = ("example.com/kept", "PreferNoSchedule")
"""A taint of a user, which the controller keeps when it adds or removes its own."""
EXISTS_PASSES, HEALTHY_PASSES = 10, 5
REQUESTS_S = 0.5
"""Time that two calls of the cloud and one write may add to a pass (s)."""
RECOVERY_S = 60.0


@needs(nodes=3, faulted=2, components=(CLOUD,), features=("power",), duration_s="G + 14P + 20")
def test_cloud_controller_deletes_unhealthy_nodes_missing_in_cloud(lab: Lab, claim: Expectations) -> None:
    """The cloud reports a healthy node gone; of a lost one, that it exists, then an error, and then gone."""
    off, lost = lab.targets
    labels: dict[str, Mapping[str, str]] = {node: lab.labels(node) for node in lab.targets}
    taint, deletion = off.taint(SHUT_DOWN, "NoSchedule"), lost.removed
    event = lost.event("DeletingNode")
    off_missing = actions.set_cloud_answers({off: "gone", lost: "fails"})
    both_missing = actions.set_cloud_answers({off: "gone", lost: "gone"})
    off_calls, lost_calls = CloudCalls(off), CloudCalls(lost, "InstanceExists")
    kept_claim, unhealthy_claim = claim("cloud.vm-exists-kept"), claim("cloud.only-unhealthy-checked")
    tainted, deleted = claim("cloud.shutdown-taint"), claim("cloud.node-deleted-when-vm-gone")

    kept_taint = off.taint(*KEPT)
    add_taint = actions.kubectl("taint", "node", off, ":".join(KEPT))

    cloud = faults.cloud({off: "shut-down", lost: "exists"}, labels)
    with lab.record(), ExitStack() as cleanup, lab.inject(cloud):
        # A fault would not be proven if the controller removed its taint.
        removal = actions.kubectl("taint", "node", off, f"{kept_taint.key}-", may_fail=True)
        cleanup.callback(lab.run, removal)
        lab.run(add_taint)
        period = lab.observe(probes.manager_field(CLOUD, "KubeCloudShared.NodeMonitorPeriod")).value
        period_s = duration_s(period)
        pass_s, few_passes_s = period_s + REQUESTS_S, HEALTHY_PASSES * period_s
        with lab.inject(faults.power_off(lost)) as power_loss:
            with lab.inject(faults.power_off(off)) as shutdown:
                lab.wait_until_lost(off, power_loss)
                tainted.expect(taint.added, within=pass_s, after=off.unknown)
            lab.wait_for(off.ready.after(off.unknown, RECOVERY_S))
            tainted.expect(taint.removed, within=pass_s, after=off.ready)
            expect_taint_of_not_ready_node(lab, claim, off, pass_s)
            many_passes_s = EXISTS_PASSES * period_s
            kept_claim.never(deletion, throughout=many_passes_s, after=lost.unknown)
            # The node is lost, though its machine is not shut down.
            taint_of_lost = lost.taint(SHUT_DOWN, "NoSchedule").added
            tainted.never(taint_of_lost, throughout=many_passes_s, after=lost.unknown)
            lab.run(off_missing)
            unhealthy_claim.never(off.removed, throughout=few_passes_s, after=off_missing.ended)
            kept_claim.never(deletion, throughout=few_passes_s, after=off_missing.ended)
            lab.run(both_missing)
            # The controller may call the cloud before the cloud has its new answers.
            answered = windows.formula("within", f"{pass_s} + 2", "0", f"{pass_s} + 2 + slack")
            for moment in (deletion, event):
                deleted.expect(moment, within=answered, after=both_missing.begun)
            lab.collect(off_calls, lost_calls)
            # Otherwise the controller would delete the Node again before it is Ready.
            lab.run(actions.set_cloud_answers({}))
        span = {"after": lost.unknown, "until": off_missing.begun}
        calls = checks.counted(lost_calls.call, EXISTS_PASSES - 2, 9999, **span)
        unhealthy_claim.expect_later(kept_claim.expect_later(calls))
        unhealthy_claim.expect_later(off_calls.call.never_after(shutdown.injected_at, "G - 2R"))
        unhealthy_claim.expect_later(off_calls.call.never_after(off_missing.ended, few_passes_s))
        restored = moments.first_after(lost.created, after=deletion)
        lab.wait_for(restored.after(deletion, RECOVERY_S))
    tainted.expect_none(kept_taint.removed, after=add_taint.ended, until=both_missing.begun)


def expect_taint_of_not_ready_node(lab: Lab, claim: Expectations, node: Node, pass_s: float) -> None:
    """Expect that the cloud is also asked about a node whose Ready is False, and not Unknown."""
    taint, tainted = node.taint(SHUT_DOWN, "NoSchedule"), claim("cloud.shutdown-taint")
    with lab.inject(faults.patch_ready(node)) as fault:
        not_ready = moments.first_after(node.not_ready, after=fault.requested_at)
        ready_again = moments.first_after(node.ready, after=not_ready)
        added = moments.first_after(taint.added, after=not_ready)
        tainted.expect(added, within=pass_s, after=not_ready)
    removed = moments.first_after(taint.removed, after=ready_again)
    tainted.expect(removed, within=pass_s, after=ready_again)
