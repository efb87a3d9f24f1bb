"""What is judged where: each claim in each kind of lab and each profile, and how much of each page it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodeproof.model.claim import Claim

JUDGED, NOTHING = "judged", "-"
Column = tuple[str, str]
"""A kind of lab and a profile."""
Lacks = Callable[[Column], str]
"""Why a scenario proves nothing there, as a code; nothing where it does."""


@dataclass(frozen=True)
class Judging:
    """A scenario: the claims that it judges, and where it proves nothing."""

    claims: tuple[str, ...]
    lacks: Lacks


def cell(claim: Claim, column: Column, scenarios: Iterable[Judging]) -> str:
    """Whether a claim is judged there: by one scenario at least, else why not."""
    if claim.status != JUDGED:
        return claim.status
    codes = [scenario.lacks(column) for scenario in scenarios if claim.id in scenario.claims]
    if not codes:
        return NOTHING
    return JUDGED if "" in codes else codes[0]


def render(claims: Mapping[str, Claim], scenarios: Sequence[Judging], columns: Sequence[Column]) -> str:
    """What is judged where with its sums, and how much of each version of the page that is."""
    header = ["claim", "tier", *(f"{kind} {profile}" for kind, profile in columns)]
    rows = [
        [claim.id, claim.tier, *(cell(claim, column, scenarios) for column in columns)]
        for claim in claims.values()
    ]
    sums = Counter(claim.status for claim in claims.values()).most_common()
    counted = ", ".join(f"{count} {status}" for status, count in sums)
    lines = [_table([header, *rows]), "", f"{len(claims)} claims: {counted}", "", _of_pages(claims.values())]
    return "\n".join(lines)


def _of_pages(claims: Iterable[Claim]) -> str:
    said: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for claim in claims:
        for version in claim.page_versions:
            said[version] += 1
            judged[version] += claim.status == JUDGED
    rows = [[version, str(said[version]), str(judged[version])] for version in sorted(said, key=_minor)]
    return _table([["page", "claims", "judged"], *rows])


def _minor(version: str) -> int:
    return int(version.rpartition(".")[2])


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
