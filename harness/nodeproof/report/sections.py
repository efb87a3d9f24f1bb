"""The headings of the Kubernetes "Nodes" page, and which areas of claims stand under each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NODES = "https://kubernetes.io/docs/concepts/architecture/nodes/"
_STATUS = "https://kubernetes.io/docs/reference/node/node-status/"
_SHUTDOWN = "https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/"
_SWAP = "https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/"


@dataclass(frozen=True)
class Section:
    """A heading of the page; `level` is 1 or, below the last one of level 1, 2.

    `address` is where Kubernetes has its text today (kubernetes/website, content/en/docs): of the page where
    no heading there is this one, and empty where Kubernetes has none.
    """

    title: str
    level: int
    areas: tuple[str, ...]
    address: str = ""


SECTIONS = (
    Section("Nodes", 1, ("components",), NODES),
    Section("Management", 1, ("manual-node",), f"{NODES}#management"),
    Section("Node name uniqueness", 2, ("naming",), f"{NODES}#node-name-uniqueness"),
    Section(
        "Self-registration of Nodes",
        2,
        ("registration", "node-restriction"),
        f"{NODES}#self-registration-of-nodes",
    ),
    Section("Manual Node administration", 2, ("cordon", "daemonset"), f"{NODES}#manual-node-administration"),
    Section("Node status", 1, (), f"{NODES}#node-status"),
    Section("Addresses", 2, ("addresses",), f"{_STATUS}#addresses"),
    Section("Conditions", 2, ("conditions", "taints", "partition", "deletion-gc"), f"{_STATUS}#condition"),
    Section("Capacity and Allocatable", 2, ("capacity",), f"{_STATUS}#capacity"),
    Section("Info", 2, ("info",), f"{_STATUS}#info"),
    Section("Node heartbeats", 1, ("heartbeat",), f"{NODES}#node-heartbeats"),
    Section("Node controller", 1, ("cidr", "cloud", "monitoring", "eviction"), f"{NODES}#node-controller"),
    Section("Rate limits on eviction", 2, ("rate-limits", "zones"), f"{NODES}#rate-limits-on-eviction"),
    Section("Resource capacity tracking", 1, ("scheduling",), f"{NODES}#node-capacity"),
    Section("Node topology", 1, ("topology",), f"{NODES}#node-topology"),
    Section(
        "Graceful node shutdown",
        1,
        ("graceful-shutdown", "shutdown-metrics"),
        f"{_SHUTDOWN}#graceful-node-shutdown",
    ),
    Section(
        "Pod Priority based graceful node shutdown",
        2,
        ("priority-shutdown",),
        f"{_SHUTDOWN}#pod-priority-graceful-node-shutdown",
    ),
    Section(
        "Non-graceful node shutdown handling",
        1,
        ("non-graceful", "out-of-service"),
        f"{_SHUTDOWN}#non-graceful-node-shutdown",
    ),
    Section("Swap memory management", 1, ("swap", "swap-metrics"), _SWAP),
)
"""In the order of the page. What the page has moved to others stands where it stood."""


def sections(areas: Iterable[str]) -> tuple[Section, ...]:
    """The page's headings, and after them one for each area that is none of the page's."""
    known = {area for section in SECTIONS for area in section.areas}
    own = sorted(set(areas) - known)
    return (*SECTIONS, *(Section(f"Not of the page: {area}", 1, (area,)) for area in own))
