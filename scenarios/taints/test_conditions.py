"""Taints that a node gets for its conditions."""

import uuid

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    UNREACHABLE,
    Stage,
    changed,
    claims,
    condition_became,
    counted,
    field_of,
    keep_alive,
    made,
    make_node,
    needs,
    next_of,
    partition,
    ready_patched,
    recording_began,
    say_condition,
    shows,
    taint_added,
    taint_removed,
    windows,
)

PROBLEMS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}


@claims("taints.noschedule-by-condition", "conditions.network-unavailable")
@needs(nodes=2, lasts="15")
def test_a_node_wears_a_taint_for_each_bad_condition(lab: Stage, judge: Judge) -> None:
    """On a Node without a kubelet, which would put its conditions right."""
    name = f"by-hand-{uuid.uuid4().hex[:8]}"
    promised = []

    with lab.record():
        of_a_kubelet = lab.look(field_of(f"/api/v1/nodes/{lab.target}", "status.conditions"))
        # What comes within the slack of an end of what is counted may lie beyond it.
        clear = windows.absence(lab.clear_s)
        lab.wait_for(made("nodes", name).never_after(recording_began(), clear))
        lab.do(make_node(name))
        lab.do(keep_alive(name))
        for kind, key in PROBLEMS.items():
            bad, well = (condition_became(name, kind, status) for status in ("True", "False"))
            for status, check in (
                ("True", taint_added(name, key, "NoSchedule").after(bad, windows.prompt(5))),
                ("False", taint_removed(name, key, "NoSchedule").after(well, windows.prompt(5))),
            ):
                lab.do(say_condition(name, kind, status))
                promised.append(lab.wait_for(check))
        lab.wait_for(bad.never_after(well, clear))
        ended = lab.look(field_of(f"/api/v1/nodes/{name}", "spec.taints"))

    for key in PROBLEMS.values():
        for effect, often in (("NoSchedule", 1), ("NoExecute", 0)):
            added = taint_added(name, key, effect)
            promised.append(counted(added, often, often, after=recording_began(), until=ended.came))
    for check in promised:
        judge("taints.noschedule-by-condition", check)
    of_the_network = promised[2 * len(PROBLEMS) - 2 : 2 * len(PROBLEMS)]
    for check in (shows(of_a_kubelet, {"$not": [{"type": "NetworkUnavailable"}]}), *of_the_network):
        judge("conditions.network-unavailable", check)


@claims("taints.mutually-exclusive")
@needs(nodes=2, faulted=1, lasts="G + 25")
def test_a_node_that_falls_silent_when_it_is_not_ready_has_one_taint_for_the_other(
    lab: Stage, judge: Judge
) -> None:
    node = lab.target
    not_ready, unknown = (condition_became(node, "Ready", status) for status in ("False", "Unknown"))
    first, second = (taint_added(node, key, "NoExecute") for key in (NOT_READY, UNREACHABLE))
    first_goes, second_goes = (taint_removed(node, key, "NoExecute") for key in (NOT_READY, UNREACHABLE))

    with lab.record(), lab.inject(ready_patched(node)):
        lab.wait_for(first.after(not_ready, windows.taint_pass()))
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            exchanged = [
                lab.wait_for(second.after(unknown, windows.taint_pass())),
                lab.wait_for(first_goes.after(second, windows.prompt(1))),
                lab.wait_for(second_goes.never_after(second, windows.absence(lab.quiet_s))),
            ]
        renewed = changed("leases", node, "spec.renewTime", "kube-node-lease")
        lab.wait_for(renewed.after(cut.healed, windows.recovery()))
        lab.do(say_condition(node, "Ready", "False"))
        again = next_of(not_ready, after=cut.healed)
        first_again = next_of(first, after=again)
        exchanged += [
            lab.wait_for(first_again.after(again, windows.taint_pass())),
            lab.wait_for(next_of(second_goes, after=again).after(first_again, windows.prompt(1))),
        ]

    for check in exchanged:
        judge("taints.mutually-exclusive", check)
