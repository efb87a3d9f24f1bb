"""A node whose own clock is wrong, and by which clock its heartbeats are fresh."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    changed,
    claims,
    clock,
    condition_became,
    counted,
    kubelet_settings,
    needs,
    next_of,
    windows,
)

BACK_S = 600
"""Far more than any grace period: who went by what Leases say would not see this node alive."""
SELDOM = "1h"
"""How often the kubelet reports a status in which nothing is new: none of these is to come between."""


@claims("heartbeat.local-clock")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="5G + 60")
def test_a_node_with_an_old_clock_lives_by_renewals_that_are_later_than_the_last(
    lab: Stage, judge: Judge
) -> None:
    """A clock that steps back makes renewals that are none; once its Lease was looked at anew, they count."""
    node, known = lab.target, lab.configuration
    unknown, ready = (condition_became(node, "Ready", status) for status in ("Unknown", "True"))
    renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")
    beats = int(known["G"] / known["R"] / 2)
    long = windows.absence(2 * known["G"])
    seldom = kubelet_settings(node, nodeStatusReportFrequency=SELDOM)

    with lab.record(), lab.inject(seldom) as restart:
        # What a kubelet that has just started reports, it reports at once.
        lab.wait_for(unknown.never_after(restart.began, windows.absence(known["G"])))
        with lab.inject(clock(node, -BACK_S)) as old:
            unseen = next_of(unknown, after=old.began)
            again = next_of(ready, after=unseen)
            lost_again = next_of(unknown, after=again)
            lost = lab.wait_for(unseen.after(old.began, windows.detection_from_fault()))
            lab.wait_for(again.after(unseen, windows.prompt(3 * known["U"])))
            lives = lab.wait_for(lost_again.never_after(again, long))

    for check in (
        lost,
        counted(renewed, beats, 99, after=old.began, until=unseen),
        lives,
        counted(renewed, 2 * beats, 999, after=again, until=old.healing),
    ):
        judge("heartbeat.local-clock", check)
