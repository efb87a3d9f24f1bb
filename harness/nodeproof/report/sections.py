"""The headings of the documents of Kubernetes, and how reports name the claims and scenarios under them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from nodeproof.model.claim import Claim, Document
from nodeproof.report import plain

NODES = "https://kubernetes.io/docs/concepts/architecture/nodes/"
_STATUS = "https://kubernetes.io/docs/reference/node/node-status/"
_SHUTDOWN = "https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/"
_RESTART = "https://kubernetes.io/docs/reference/node/what-happens-on-restart/"
DOCUMENTS: Mapping[Document, tuple[str, str]] = {
    "nodes": ("Nodes", NODES),
    "restart": ("What Happens After A Node Restart", _RESTART),
}
"""Title and address of each document of the catalogue."""
_SWAP = "https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/"


@dataclass(frozen=True)
class Section:
    """A heading of a document, of level 1 or 2.

    `address` is the URL of its present text (kubernetes/website, content/en/docs): of the whole page if the
    heading no longer exists there, empty if there is no such text.
    """

    title: str
    level: int
    areas: tuple[str, ...]
    address: str = ""


SECTIONS = (
    Section(DOCUMENTS["nodes"][0], 1, ("components",), NODES),
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
    Section(
        "Node controller",
        1,
        ("cidr", "cloud", "monitoring", "eviction", "leader-election", "control-planes", "storm"),
        f"{NODES}#node-controller",
    ),
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
    Section(DOCUMENTS["restart"][0], 1, (), _RESTART),
    Section(
        "Impact of a kubelet restart", 2, ("kubelet-restart",), f"{_RESTART}#impact-of-a-kubelet-restart"
    ),
    Section(
        "Impact of a container runtime restart",
        2,
        ("runtime-restart",),
        f"{_RESTART}#impact-of-a-container-runtime-restart",
    ),
    Section("Impact of a node reboot", 2, ("reboot",), f"{_RESTART}#impact-of-a-node-reboot"),
)
"""In the order of the Nodes page, where headings that were moved to other pages keep their place; then those
of What Happens After A Node Restart.
"""


def sections(areas: Iterable[str]) -> tuple[Section, ...]:
    """Return the headings, followed by one for each area that no document has."""
    of_page = {area for section in SECTIONS for area in section.areas}
    others = sorted(set(areas) - of_page)
    return (*SECTIONS, *(Section(f"Not on the page: {area}", 1, (area,)) for area in others))


@cache
def section_of(claim: str) -> Section:
    """Return the heading of a claim."""
    area = claim.partition(".")[0]
    return next(section for section in sections([area]) if area in section.areas)


_WORDS = {
    word.lower().replace("-", " "): word
    for word in (
        *("API", "CIDR", "CIDRs", "CPU", "CPUs", "CSI", "DNS", "HTTP", "IP", "IPs", "IPv4", "IPv6", "JSON"),
        *("OOM", "OS", "PDB", "PID", "PIDs", "QoS", "SIGKILL", "SIGTERM", "TCP", "TLS", "UDP", "UID"),
        *("VM", "VMs", "DaemonSet", "NoExecute", "NoSchedule", "NodeRestriction", "PreferNoSchedule"),
        *("StatefulSet", "fifty-one", "hand-made", "kube-proxy", "well-known"),
    )
}
"""Spelling of terms; names of functions have neither capitals nor hyphens."""
_WORD = re.compile(rf"\b({'|'.join(sorted(_WORDS, key=len, reverse=True))})\b")
_OWNER = re.compile(
    r"(?<!ty )\b((?:an?|one) (?:dead |lost |silent )?(?:kubelet|machine|node|pod))s\b|\b(server)s(?= flags\b)"
)
"""Possessives without their apostrophe: after `a`, a word that ends in -s is not a plural."""
_PROGRAMS = ("containerd", "etcd", "kube-proxy", "kubectl", "kubelet")
"""In lower case even at the beginning of a sentence."""


def title(nodeid: str) -> str:
    """Return a scenario's title: the name of its function as a sentence, and its parameters."""
    path, bracket, parameters = nodeid.partition("[")
    name = path.rpartition("::")[2] or path
    sentence = name.removeprefix("test_").replace("_", " ")
    sentence = _OWNER.sub(lambda match: f"{match[1] or match[2]}'s", sentence)
    sentence = _WORD.sub(lambda match: _WORDS[match[1]], sentence)
    if sentence.partition(" ")[0] not in _PROGRAMS:
        sentence = sentence[:1].upper() + sentence[1:]
    return f"{sentence} [{parameters}" if bracket else sentence


def feature(claim_id: str, claim: Claim | None) -> str:
    """Return the statement of a claim with its id; only the id if the catalogue does not have it."""
    return f"{plain.on_terminal(claim.statement)} ({claim_id})" if claim else claim_id
