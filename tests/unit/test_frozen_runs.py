"""Recordings of real labs: whatever becomes of the code, it judges them as it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from harness import catalogue
from harness.model.verdict import Code, Outcome
from harness.report import rundir
from harness.report.recheck import rejudge
from tests.freeze import RUNS, thawed

FROZEN = sorted(RUNS.iterdir())


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_a_frozen_run_is_judged_as_it_was(frozen: Path) -> None:
    claims = catalogue.load([])
    with thawed(frozen) as scenario:
        now = [
            rundir.row(claims[judgment.claim], scenario.nodeid, verdict, scenario.configuration())
            for judgment, verdict in rejudge(scenario, claims)
        ]
        assert now
        assert [_judged(row) for row in now] == [_judged(row) for row in scenario.rows[: len(now)]]


def _judged(row: rundir.Row) -> str:
    """What a verdict is, without its wording."""
    return json.dumps({name: row[name] for name in ("claim", "verdict", "code", "window", "measured")})


def test_every_outcome_and_every_code_was_recorded_in_both_kinds_of_lab() -> None:
    rows: list[rundir.Row] = []
    for frozen in FROZEN:
        with thawed(frozen) as scenario:
            rows += scenario.rows
    assert {row["verdict"] for row in rows} == set(get_args(Outcome))
    assert {row["code"] or "" for row in rows} == set(get_args(Code))
    assert {row["lab"] for row in rows} == {"process", "libvirt"}
