"""A field of a kubelet's running configuration."""

from __future__ import annotations

from nodeproof.cluster.configuration import kubelet_configz
from nodeproof.labs.client.lab import Lab
from nodeproof.model.pattern import value_at
from nodeproof.probes.probe import Json, Probe


def kubelet_field(node: str, path: str) -> Probe:
    """What a kubelet says of its configuration at a path such as `memorySwap.swapBehavior`; None where it
    says nothing.
    """

    def read(lab: Lab) -> Json:
        return value_at(path, kubelet_configz(lab.cluster.api, node))

    return Probe(f"/configz {path}", node, read)
