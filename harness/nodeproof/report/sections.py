"""The headings of the Kubernetes "Nodes" page, and which areas of claims stand under each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading of the page; `level` is 1 or, below the last one of level 1, 2."""

    title: str
    level: int
    areas: tuple[str, ...]


SECTIONS = (
    Section("Nodes", 1, ("components",)),
    Section("Management", 1, ("manual-node",)),
    Section("Node name uniqueness", 2, ("naming",)),
    Section("Self-registration of Nodes", 2, ("registration", "node-restriction")),
    Section("Manual Node administration", 2, ("cordon", "daemonset")),
    Section("Node status", 1, ()),
    Section("Addresses", 2, ("addresses",)),
    Section("Conditions", 2, ("conditions", "taints", "partition", "deletion-gc")),
    Section("Capacity and Allocatable", 2, ("capacity",)),
    Section("Info", 2, ("info",)),
    Section("Node heartbeats", 1, ("heartbeat",)),
    Section("Node controller", 1, ("cidr", "cloud", "monitoring", "eviction")),
    Section("Rate limits on eviction", 2, ("rate-limits", "zones")),
    Section("Resource capacity tracking", 1, ("scheduling",)),
    Section("Node topology", 1, ("topology",)),
    Section("Graceful node shutdown", 1, ("graceful-shutdown", "shutdown-metrics")),
    Section("Pod Priority based graceful node shutdown", 2, ("priority-shutdown",)),
    Section("Non-graceful node shutdown handling", 1, ("non-graceful", "out-of-service")),
    Section("Swap memory management", 1, ("swap", "swap-metrics")),
)
"""In the order of the page. What the page has moved to others stands where it stood."""


def sections(areas: Iterable[str]) -> tuple[Section, ...]:
    """The page's headings, and after them one for each area that is none of the page's."""
    known = {area for section in SECTIONS for area in section.areas}
    own = sorted(set(areas) - known)
    return (*SECTIONS, *(Section(f"Not of the page: {area}", 1, (area,)) for area in own))
