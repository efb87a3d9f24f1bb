"""The address ranges of Nodes for their pods."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import combinations

from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Json, Probe


def overlapping_ranges() -> Probe:
    """Return a probe of all Nodes' pod CIDRs: the number of `ranges` and of `overlapping` pairs of them."""

    def read(lab: Lab) -> Json:
        items = lab.cluster.api.get(WATCHED["nodes"])["items"]
        ranges = [ip_network(cidr) for item in items for cidr in item["spec"].get("podCIDRs", ())]
        pairs = combinations(ranges, 2)
        return {"ranges": len(ranges), "overlapping": sum(one.overlaps(other) for one, other in pairs)}

    return Probe("podCIDRs", "all Nodes", read)
