"""What time a node takes it to be."""

from __future__ import annotations

from nodeproof.probes.probe import Probe, output_of


def wall_clock(node: str) -> Probe:
    """The whole seconds since 1970 by a node's own clock."""
    return Probe("wall clock", node, lambda lab: int(output_of(lab, node, ["date", "+%s"])))
