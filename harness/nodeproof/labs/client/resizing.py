"""Resizes a running lab, so that a scenario with more nodes costs only the additional nodes."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.problem import Problem


def resize(lab: Lab, nodes: int) -> None:
    """Remove nodes, last slot first, or add nodes, evenly over the zones, until the lab has `nodes`.

    Then wait until all are Ready. Raises Problem, ApiError.
    """
    current = sorted(lab.fleet.nodes(), key=lambda entry: entry.slot)
    for entry in reversed(current[nodes:]):
        lab.leave(entry.name)
    zones = lab.fleet.zones()
    for number in range(len(current), nodes):
        slot = lab.fleet.free_slot()
        lab.join(f"node-{slot + 1}", zones[number % len(zones)], slot)
    lab.wait_nodes_ready()
    count = len(lab.fleet.nodes())
    if count != nodes:
        raise Problem(
            f"{count} nodes instead of {nodes}", f"lab {lab.name}", "a dedicated lab is used instead"
        )
