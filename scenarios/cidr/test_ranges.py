"""Pod CIDR ranges that the controller manager allocates to nodes."""

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, probes
from nodeproof.scenario.kubernetes import PRESENT, Node, unique
from nodeproof.scenario.types import Moment

MANAGER, JOINER = "kube-controller-manager", Node("ranged")
IPV4, IPV6 = "10.244.0.0", "fd44::"
ALLOCATION_S, RELEASE_S, UP_S = 5.0, 60.0, 60.0
"""A failed allocation is retried with exponential backoff, so a range has to be freed soon."""


@needs(nodes=(2,), components=(MANAGER,), duration_s="60")
def test_nodes_get_unique_pod_cidrs_once_allocation_is_enabled(lab: Lab, claim: Expectations) -> None:
    """The lab's own nodes keep their ranges: a Node cannot lose its range.

    One Node is created with the last range, so that all others are allocated before it.
    """
    mark, exhausted, released = unique("by-hand"), claim("cidr.exhausted"), claim("cidr.released")
    early_node, late_node = Node(f"{mark}-early"), Node(f"{mark}-late")
    late_range = range_report(late_node)
    bits = (len(lab.nodes()) + 3).bit_length()
    others = [Node(f"{mark}-{number}") for number in range(2**bits - len(lab.nodes()) - 3)]
    last_ranges = [f"10.244.{2**bits - 1}.0/24", f"fd44:0:0:{2**bits - 1:x}::/64"]
    own_ranges = {"podCIDR": last_ranges[0], "podCIDRs": last_ranges}
    assigned_node = {"metadata": {"name": f"{mark}-assigned"}, "spec": own_ranges}

    with lab.record():
        lab.run(actions.create_node(early_node))
        early_range, created = range_report(early_node), early_node.created
        claim("cidr.off-by-default").never(early_range, throughout=lab.quiet_s, after=created)
        with lab.inject(faults.settings(MANAGER, **allocate())) as fault:
            expect_range(claim, early_node, fault.injected_at, UP_S)
            lab.run(actions.join(JOINER))
            expect_range(claim, JOINER, JOINER.created, ALLOCATION_S)
        with lab.inject(faults.settings(MANAGER, **allocate(bits))) as fault:
            for name in others:
                lab.run(actions.create_node(name))
                lab.wait_for(range_report(name).after(fault.injected_at, UP_S))
                if name == others[0]:
                    # Not earlier: a controller manager that starts reads the ranges of all Nodes.
                    lab.run(actions.send_request("POST", "/api/v1/nodes", assigned_node))
            no_overlap = {"ranges": 2 * 2**bits, "overlapping": 0}
            claim("cidr.unique").expect_value(lab.observe(probes.overlapping_ranges()), no_overlap)
            lab.run(actions.create_node(late_node))
            refusal = late_node.event("CIDRNotAvailable")
            exhausted.expect(refusal, within=UP_S, after=late_node.created)
            # No change of this Node makes the controller manager look at it again: only its own retry does.
            lab.run(actions.keep_alive(late_node))
            exhausted.never(late_range, throughout=5.0, after=late_node.created)
            lab.run(actions.kubectl("delete", "node", early_node))
            released.expect(late_range, within=RELEASE_S, after=early_node.removed)
            ranges = lab.observe(probes.overlapping_ranges())
            released.expect_value(ranges, no_overlap)
            claim("cidr.unique").expect_value(ranges, {"overlapping": 0})
        # These requests come last: no controller manager starts on ranges that overlap. The first range is
        # an earlier Node's.
        other = {"podCIDR": f"{IPV4}/24", "podCIDRs": [f"{IPV4}/24", f"{IPV6}/64"]}
        for spec in (other, dict.fromkeys(other)):
            answer = lab.run(actions.send_request("PATCH", f"/api/v1/nodes/{JOINER}", {"spec": spec}))
            claim("cidr.immutable").expect_value(answer, {"status": 422})


def expect_range(claim: Expectations, node: Node, after: Moment, within_s: float) -> None:
    """Expect that a Node gets ranges of the default lengths."""
    ranges = range_report(node, ("/24", "/64"))
    check = claim("cidr.assigned").expect(ranges, within=within_s, after=after)
    claim("cidr.mask-size").expect_later(check)


def range_report(node: Node, masks: tuple[str, str] | None = None) -> Moment:
    """Match the range of a Node, of either family, with these lengths if any."""
    if masks is None:
        return node.became({"spec": {"podCIDR": PRESENT}})
    ipv4, ipv6 = masks
    ranges = [{"$contains": f"0{ipv4}"}, {"$contains": f":{ipv6}"}]
    return node.became({"spec": {"podCIDRs": ranges}})


def allocate(bits: int = 0) -> dict[str, str]:
    """Return flags for 2**bits ranges; without `bits`, for all possible ones."""
    ipv4, ipv6 = (24 - bits, 64 - bits) if bits else (16, 48)
    return {"allocate_node_cidrs": "true", "cluster_cidr": f"{IPV4}/{ipv4},{IPV6}/{ipv6}"}
