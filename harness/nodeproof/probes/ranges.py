"""The ranges of addresses that Nodes have for their pods."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import combinations

from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Json, Probe


def overlapping_ranges() -> Probe:
    """How many `ranges` all Nodes have together, and how many pairs of them are `overlapping`."""

    def read(lab: Lab) -> Json:
        items = lab.cluster.api.get(WATCHED["nodes"])["items"]
        ranges = [ip_network(told) for item in items for told in item["spec"].get("podCIDRs", ())]
        pairs = combinations(ranges, 2)
        return {"ranges": len(ranges), "overlapping": sum(one.overlaps(other) for one, other in pairs)}

    return Probe("podCIDRs", "all Nodes", read)
