"""The scenarios that a run was to have, with their claims, and those of them that left no verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.report import broken, rundir
from nodeproof.report.rundir import Row

Declared = Mapping[str, tuple[str, ...]]
"""Scenarios, by node id, with their claims."""
_MOST_NAMED = 5


def read(run: Path) -> Declared | None:
    """What the run said when it began; None of one that did not say it, or of which that is malformed."""
    with contextlib.suppress(Problem, TypeError, AttributeError):
        told = rundir.read_json(run / rundir.DECLARED).items()
        return {scenario: tuple(map(str, claims)) for scenario, claims in told}
    return None


def without_verdict(run: Path, rows: Iterable[Row]) -> Declared:
    """Those of which there is no row, in order; one whose worker died has rows under another name."""
    judged = {row["scenario"].removesuffix(broken.DIED) for row in rows}
    return {name: claims for name, claims in sorted((read(run) or {}).items()) if name not in judged}


def said(left: Declared) -> Iterator[str]:
    """The same as a sentence; none where each has one."""
    if left:
        more = f", and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        yield f"Scenarios without a verdict: {', '.join([*left][:_MOST_NAMED])}{more}."
