"""The claims that the scenarios judge, found by pytest's collection without running any scenario."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import pytest

from nodeproof import catalogue
from nodeproof.artifacts.components import BUILD, DEFAULT_KUBERNETES_VERSION
from nodeproof.labs.ground.profiles import PROFILES
from nodeproof.labs.kinds import KINDS
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report.coverage import Column, Judging, render
from nodeproof.session import asked
from nodeproof.session.options import Options

COLUMNS: Sequence[Column] = [(kind, profile) for kind in KINDS for profile in PROFILES]


def coverage(paths: Sequence[str]) -> str:
    """Render which claims the scenarios in these paths (default: the shipped ones) judge, and where.

    Raises:
        Problem: The scenarios cannot be collected.
    """
    collection = _collect(paths)
    return render(collection.claims, [_judging(item) for item in collection.items], COLUMNS)


def collected() -> tuple[Mapping[str, Claim], Mapping[str, Set[str]]]:
    """Return the catalogue, and for each claim the shipped files that judge it. Raises Problem."""
    collection = _collect(())
    files: dict[str, set[str]] = {}
    for item in collection.items:
        for claim in asked.declared(item):
            files.setdefault(claim, set()).add(item.path.relative_to(catalogue.scenarios_dir()).as_posix())
    return collection.claims, files


def _collect(paths: Sequence[str]) -> _Collection:
    collection, output = _Collection(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "--shipped", *paths]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(arguments, plugins=[collection])
    if status != pytest.ExitCode.OK:
        last_line = next((line for line in reversed(output.getvalue().splitlines()) if line), "")
        raise Problem(
            "the scenarios cannot be collected", ", ".join(paths) or "shipped", "see below", last_line
        )
    return collection


@dataclass
class _Collection:
    """A pytest plugin that keeps the collected scenarios."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    items: list[pytest.Item] = field(default_factory=list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the claims and the scenarios."""
        self.claims = catalogue.load(session.config.getini("nodeproof_claims"))
        self.items = [item for item in session.items if asked.declared(item)]


def _judging(item: pytest.Item) -> Judging:
    needs = asked.needs(item)
    nodes = max(needs.nodes, 2 * needs.zones)

    def lacks(column: Column) -> str:
        kind, profile = column
        size = (0, 0) if needs.spread else (nodes, needs.zones)
        options = Options(kind, profile, DEFAULT_KUBERNETES_VERSION, BUILD, (), *size, kind)
        missing = asked.lacks(item, options)
        return missing[0] if missing else ""

    return Judging(asked.declared(item), lacks)
