"""The claims that the scenarios judge in each lab kind and profile, by pytest's collection alone."""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import pytest

from nodeproof import catalogue
from nodeproof.artifacts.build import BUILD
from nodeproof.labs.base.profiles import PROFILES
from nodeproof.labs.kinds import KINDS
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.report.plain import aligned
from nodeproof.session import markers
from nodeproof.session.options import Options

Column = tuple[str, str]
"""A lab kind and a profile."""
COLUMNS: Sequence[Column] = [
    (name, profile) for name, kind in KINDS.items() if not kind.hosts_control_plane for profile in PROFILES
]
JUDGED = "judged"


@dataclass(frozen=True)
class Coverage:
    """The claims of one scenario; `why_not` returns a code for columns in which it proves nothing."""

    claims: Sequence[str]
    why_not: Callable[[Column], str]


def coverage(paths: Sequence[str]) -> str:
    """Render which claims the scenarios in these paths (default: the shipped ones) judge, and where.

    Raises:
        Problem: The scenarios cannot be collected.
    """
    collection = _collect(paths)
    return render(collection.claims, [_coverage_of(item) for item in collection.items], COLUMNS)


def collected() -> tuple[Mapping[str, Claim], Mapping[str, Set[str]]]:
    """Return the catalogue, and for each claim the shipped files that judge it. Raises Problem."""
    collection = _collect(())
    files: dict[str, set[str]] = {}
    for item in collection.items:
        for claim in markers.declared(item):
            files.setdefault(claim, set()).add(item.path.relative_to(catalogue.scenarios_dir()).as_posix())
    return collection.claims, files


def render(claims: Mapping[str, Claim], scenarios: Sequence[Coverage], columns: Sequence[Column]) -> str:
    """Return where each claim is judged, the number of claims by status, and of each document's versions."""
    head = ["claim", "tier", *map(" ".join, columns)]
    rows = [
        [claim.id, claim.tier, *(cell(claim, column, scenarios) for column in columns)]
        for claim in claims.values()
    ]
    statuses = Counter(claim.status for claim in claims.values()).most_common()
    totals = f"{len(claims)} claims: {', '.join(f'{count} {status}' for status, count in statuses)}"
    return "\n".join([*aligned([head, *rows]), "", totals, "", *aligned(_page_counts(claims.values()))])


def cell(claim: Claim, column: Column, scenarios: Iterable[Coverage]) -> str:
    """Return `judged` if at least one scenario judges the claim there, else the reason."""
    if claim.status != JUDGED:
        return claim.status
    codes = [scenario.why_not(column) for scenario in scenarios if claim.id in scenario.claims]
    if not codes:
        return "-"
    return JUDGED if "" in codes else codes[0]


def _page_counts(claims: Iterable[Claim]) -> list[list[str]]:
    statuses: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for claim in claims:
        for version in claim.page_versions:
            statuses[claim.document, int(version.rpartition(".")[2])][claim.status] += 1
    rows = [
        [document, f"v1.{minor}", str(counts.total()), str(counts[JUDGED])]
        for (document, minor), counts in sorted(statuses.items())
    ]
    return [["document", "page", "claims", "judged"], *rows]


def _collect(paths: Sequence[str]) -> _Collection:
    collection, output = _Collection(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "--shipped", *paths]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(arguments, plugins=[collection])
    if status != pytest.ExitCode.OK:
        last_line = next((line for line in reversed(output.getvalue().splitlines()) if line), "")
        where = ", ".join(paths) or "shipped"
        raise Problem("the scenarios cannot be collected", where, "correct the error below", last_line)
    return collection


@dataclass
class _Collection:
    """A pytest plugin that keeps the collected scenarios."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    items: list[pytest.Item] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
        """Keep the claims and the scenarios, with the storm, which a run deselects."""
        self.claims = catalogue.load(config.getini("nodeproof_claims"))
        self.items = [item for item in items if markers.declared(item)]


def _coverage_of(item: pytest.Item) -> Coverage:
    needs = markers.needs(item)
    nodes = max(needs.nodes, 2 * needs.zones)

    def why_not(column: Column) -> str:
        kind, profile = column
        size = (0, 0) if needs.spread else (nodes, needs.zones)
        options = Options(kind, profile, DEFAULT_KUBERNETES_VERSION, BUILD, (), *size, kind)
        missing = markers.why_unprovable(item, options)
        return missing[0] if missing else ""

    return Coverage(markers.declared(item), why_not)
