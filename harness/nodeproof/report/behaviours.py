"""A scenario as Allure's readers look for it: section of the page, claim, scenario; and links to the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from nodeproof.model.claim import Claim
from nodeproof.report import plain
from nodeproof.report.sections import Section, sections

SCENARIO = "scenario"
"""The label that has the node id, by which a result is found whatever its title."""
Label = tuple[str, str]
"""Name and value."""
Link = tuple[str, str]
"""Address and name."""
_WORDS = {
    word.lower().replace("-", " "): word
    for word in (
        *("API", "CIDR", "CIDRs", "CPU", "CPUs", "CSI", "DNS", "HTTP", "IP", "IPs", "IPv4", "IPv6", "JSON"),
        *("OOM", "OS", "PDB", "PID", "PIDs", "QoS", "SIGKILL", "SIGTERM", "TCP", "TLS", "UDP", "UID"),
        *("VM", "VMs", "DaemonSet", "NoExecute", "NoSchedule", "NodeRestriction", "PreferNoSchedule"),
        *("StatefulSet", "fifty-one", "hand-made", "kube-proxy", "well-known"),
    )
}
"""As the field writes them; the name of a function has neither capitals nor hyphens."""
_WORD = re.compile(rf"\b({'|'.join(sorted(_WORDS, key=len, reverse=True))})\b")
_OWNER = re.compile(
    r"(?<!ty )\b((?:an?|one) (?:dead |lost |silent )?(?:kubelet|machine|node|pod))s\b|\b(server)s(?= flags\b)"
)
"""Who has something: after `a` it cannot be several."""
_PROGRAMS = ("containerd", "etcd", "kube-proxy", "kubectl", "kubelet")
"""Written small, also where they begin a sentence."""


def labels(nodeid: str, claims: Iterable[str], known: Mapping[str, Claim]) -> Iterator[Label]:
    """Of a scenario that judges these claims, of which the catalogue has those that are `known`."""
    claims = sorted(set(claims))
    yield from (("epic", title) for title in dict.fromkeys(section(claim) for claim in claims))
    yield from (("feature", feature(claim, known.get(claim))) for claim in claims)
    yield "story", title(nodeid)
    yield SCENARIO, nodeid
    yield from (("claim", claim) for claim in claims)


def links(claims: Iterable[str]) -> Iterator[Link]:
    """To each of the claims' headings, where Kubernetes has them today. Allure makes no link of a relative
    address, so none leads to the judged page: that is linked above every scenario.
    """
    for found in dict.fromkeys(_section(claim) for claim in sorted(set(claims))):
        if found.address:
            yield found.address, f"Kubernetes: {found.title}"


def section(claim: str) -> str:
    """The heading under which a claim stands."""
    return _section(claim).title


@cache
def _section(claim: str) -> Section:
    area = claim.partition(".")[0]
    return next(each for each in sections([area]) if area in each.areas)


def feature(claim: str, known: Claim | None) -> str:
    """A claim as the page says it, with its id."""
    return f"{plain.on_terminal(known.statement)} ({claim})" if known else claim


def title(nodeid: str) -> str:
    """A scenario as people say it, the same in every report: its function's name as a sentence, and its
    parameters as they are.
    """
    path, bracket, parameters = nodeid.partition("[")
    name = path.rpartition("::")[2] or path
    said = name.removeprefix("test_").replace("_", " ")
    said = _WORD.sub(lambda found: _WORDS[found[1]], _OWNER.sub(_owning, said))
    if said.partition(" ")[0] not in _PROGRAMS:
        said = said[:1].upper() + said[1:]
    return f"{said} [{parameters}" if bracket else said


def _owning(found: re.Match[str]) -> str:
    return f"{found[1] or found[2]}'s"


def order(known: Mapping[str, Claim]) -> tuple[Mapping[str, int], Mapping[str, tuple[str, int]]]:
    """Where each heading stands on the page; and of each claim, as `feature` names it, its heading and where
    it stands in the catalogue.
    """
    headings = {
        each.title: at for at, each in enumerate(sections(claim.partition(".")[0] for claim in known))
    }
    ordered = sorted(known.items(), key=lambda each: headings[section(each[0])])
    placed = {feature(claim, told): (section(claim), at) for at, (claim, told) in enumerate(ordered, 1)}
    return headings, placed
