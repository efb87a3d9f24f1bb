"""Which claims the scenarios judge, by collecting them as pytest does; none is run."""

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
    """What is judged where, of the catalogue, by the scenarios below these paths; by the shipped ones where
    none is given.

    Raises Problem where they can't be collected.
    """
    found = _collect(paths)
    return render(found.claims, [_judging(item) for item in found.items], COLUMNS)


def collected() -> tuple[Mapping[str, Claim], Mapping[str, Set[str]]]:
    """The catalogue, and the files of shipped scenarios that judge each claim. Raises Problem."""
    found = _collect(())
    files: dict[str, set[str]] = {}
    for item in found.items:
        for claim in asked.declared(item):
            files.setdefault(claim, set()).add(item.path.relative_to(catalogue.scenarios_dir()).as_posix())
    return found.claims, files


def _collect(paths: Sequence[str]) -> _Collected:
    found, said = _Collected(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "--shipped", *paths]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(arguments, plugins=[found])
    if status != pytest.ExitCode.OK:
        last = next((line for line in reversed(said.getvalue().splitlines()) if line), "")
        raise Problem("the scenarios cannot be collected", ", ".join(paths) or "shipped", "see below", last)
    return found


@dataclass
class _Collected:
    """A pytest plugin that keeps what is collected."""

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
        found = asked.lacks(item, options)
        return found[0] if found else ""

    return Judging(asked.declared(item), lacks)
