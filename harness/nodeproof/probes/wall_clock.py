"""The time on a node's clock."""

from __future__ import annotations

from nodeproof.probes.probe import Probe, output_of


def wall_clock(node: str) -> Probe:
    """Return a probe of a node's own clock (whole seconds since 1970)."""
    return Probe("wall clock", node, lambda lab: int(output_of(lab, node, ["date", "+%s"])))
