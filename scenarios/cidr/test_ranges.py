"""Ranges of addresses for the pods of each node, where a controller manager is told to give them out."""

import uuid

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    Moment,
    Stage,
    ask,
    became,
    claims,
    event_reported,
    join,
    kubectl,
    made,
    make_node,
    needs,
    overlapping_ranges,
    removed,
    settings,
    shows,
    windows,
)

MANAGER, JOINER = "kube-controller-manager", "ranged"
FOUR, SIX = "10.244.0.0", "fd44::"
DEFAULT_MASKS = ("/24", "/64")
GIVEN_S, FREED_S, NEVER_S = 5.0, 60.0, 5.0
"""What finds no range is tried again after twice as long each time: a range has to be freed soon."""
UP_S = 60.0


def has_range(node: str, masks: tuple[str, str] | None = None) -> Moment:
    """Of either family, of the length that is told."""
    if masks is None:
        return became("nodes", node, {"spec": {"podCIDR": PRESENT}})
    four, six = masks
    return became(
        "nodes", node, {"spec": {"podCIDRs": [{"$contains": f"0{four}"}, {"$contains": f":{six}"}]}}
    )


def allocate(bits: int = 0) -> dict[str, str]:
    """Flags for as many ranges as numbers of so many bits are; without, for all that there can be."""
    four, six = (24 - bits, 64 - bits) if bits else (16, 48)
    return {"allocate_node_cidrs": "true", "cluster_cidr": f"{FOUR}/{four},{SIX}/{six}"}


@claims(
    "cidr.off-by-default",
    "cidr.assigned",
    "cidr.mask-size",
    "cidr.unique",
    "cidr.immutable",
    "cidr.exhausted",
    "cidr.released",
)
@needs(nodes=(2,), components=(MANAGER,), lasts="60")
def test_each_node_has_a_range_of_its_own_once_ranges_are_given_out(lab: Stage, judge: Judge) -> None:
    """The lab's own nodes keep theirs: no Node can lose its range."""
    mark = uuid.uuid4().hex[:8]
    early, late = f"by-hand-{mark}-early", f"by-hand-{mark}-late"
    bits = (len(lab.nodes()) + 1).bit_length()
    others = [f"by-hand-{mark}-{each}" for each in range(2**bits - len(lab.nodes()) - 2)]
    soon, quiet = windows.prompt(GIVEN_S), windows.absence(NEVER_S)
    ranged = has_range(JOINER, DEFAULT_MASKS)
    # The first range is an earlier Node's.
    other = {"podCIDR": f"{FOUR}/24", "podCIDRs": [f"{FOUR}/24", f"{SIX}/64"]}

    with lab.record():
        lab.do(make_node(early))
        by_hand = made("nodes", early)
        lab.wait_for(has_range(early).never_after(by_hand, windows.absence(lab.quiet_s + lab.clear_s)))
        off = has_range(early).never_after(by_hand, windows.absence(lab.quiet_s))
        with lab.inject(settings(MANAGER, **allocate())) as on:
            given = [lab.wait_for(has_range(early, DEFAULT_MASKS).after(on.began, windows.prompt(UP_S)))]
            lab.do(join(JOINER))
            given.append(lab.wait_for(ranged.after(made("nodes", JOINER), soon)))
        with lab.inject(settings(MANAGER, **allocate(bits))) as few:
            for name in others:
                lab.do(make_node(name))
                lab.wait_for(has_range(name).after(few.began, windows.prompt(UP_S)))
            unique = lab.look(overlapping_ranges())
            lab.do(make_node(late))
            born = made("nodes", late)
            told = event_reported("CIDRNotAvailable", "Node", late, "")
            without = [
                lab.wait_for(told.after(born, windows.prompt(UP_S))),
                lab.wait_for(has_range(late).never_after(born, quiet)),
            ]
            lab.do(kubectl("delete", "node", early))
            freed = lab.wait_for(has_range(late).after(removed("nodes", early), windows.prompt(FREED_S)))
            handed_on = lab.look(overlapping_ranges())
        # At last: no controller manager starts on ranges that overlap.
        changed = [
            lab.do(ask("PATCH", f"/api/v1/nodes/{JOINER}", {"spec": spec}))
            for spec in (other, dict.fromkeys(other))
        ]

    judge("cidr.off-by-default", off)
    for check in given:
        judge("cidr.assigned", check)
        judge("cidr.mask-size", check)
    all_given = {"ranges": 2 * 2**bits, "overlapping": 0}
    judge("cidr.unique", shows(unique, all_given))
    for answer in changed:
        judge("cidr.immutable", shows(answer, {"status": 422}))
    for check in without:
        judge("cidr.exhausted", check)
    for check in (freed, shows(handed_on, all_given)):
        judge("cidr.released", check)
