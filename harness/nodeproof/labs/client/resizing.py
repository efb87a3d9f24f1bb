"""Makes a lab that runs larger or smaller: what a scenario needs costs the nodes that it needs more."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.problem import Problem


def resize(lab: Lab, nodes: int) -> None:
    """Let nodes leave, the last first, or join, evenly over the zones, until there are so many, all of them
    Ready. Raises Problem, ApiError.
    """
    there = sorted(lab.fleet.nodes(), key=lambda entry: entry.slot)
    for entry in reversed(there[nodes:]):
        lab.leave(entry.name)
    zones = lab.fleet.zones()
    for number in range(len(there), nodes):
        slot = lab.fleet.free_slot()
        lab.join(f"node-{slot + 1}", zones[number % len(zones)], slot)
    lab.wait_nodes_ready()
    found = len(lab.fleet.nodes())
    if found != nodes:
        raise Problem(f"{found} nodes instead of {nodes}", f"lab {lab.name}", "another lab takes over")
