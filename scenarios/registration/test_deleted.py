"""A Node that is deleted, and its kubelet."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    claims,
    kubectl,
    made,
    needs,
    next_of,
    node_deleted,
    removed,
    unit_down,
    windows,
)

UP_S = 30.0
LONG = "max(3U, U + 10)"
"""A kubelet finds out within U, and its longest wait for another registration is 7 s
(pkg/kubelet/kubelet_node_status.go: registerWithAPIServer).
"""


@claims("registration.no-reregister-after-delete")
@needs(nodes=2, faulted=1, lasts=f"{LONG} + 25")
def test_a_running_kubelet_does_not_make_its_node_again_and_one_that_starts_does(
    lab: Stage, judge: Judge
) -> None:
    node = lab.target
    gone, again = removed("nodes", node), made("nodes", node)

    with lab.record():
        with lab.inject(node_deleted(node, lab.labels(node))) as deletion:
            long = windows.formula("negative", LONG, "0", LONG)
            back = next_of(again, after=gone)
            longer = windows.formula("negative", LONG, "0", f"{LONG} + {lab.clear_s}")
            lab.wait_for(back.never_after(gone, longer))
            stays_away = back.never_after(gone, long)
        with lab.inject(unit_down(node)) as down:
            lab.do(kubectl("delete", "node", node))
            late = windows.prompt(UP_S)
            lab.wait_for(next_of(gone, after=down.began).after(down.began, late))
        comes = lab.wait_for(next_of(again, after=down.healing).after(down.healing, late))

    for check in (stays_away, deletion.lasted, comes):
        judge("registration.no-reregister-after-delete", check)
