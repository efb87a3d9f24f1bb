"""Recordings of real labs: whatever becomes of the code, it judges them as it did, and can judge otherwise.

`python -m tests.golden_runs` keeps one. Where a rule of judging is changed on purpose, the verdicts that it
changes are listed in CHANGED, by run and by their number in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest

from nodeproof import catalogue
from nodeproof.checks.judge import judge
from nodeproof.model.verdict import Code, Outcome
from nodeproof.report.digest import verdict_of
from nodeproof.report.recheck import rejudge
from nodeproof.report.rundir import Scenario
from tests.golden_runs import RUNS, thawed
from tests.history_mutations import Judged, falsified

FROZEN = sorted(path.name for path in RUNS.iterdir() if (path / "judgments.json").exists())
CLAIMS = catalogue.load([RUNS / "claims"])
LEAST_WAYS, LATE = 3, {"the event is late", "the object is created differently"}
CHANGED: Mapping[str, Mapping[int, str]] = {
    # A renewal from before the recording does not count.
    "lease": {0: "unproven: gap"},
    "nothing-known": {4: "unproven: gap"},
    # A missing anchor is no deviation of a claim that starts at it.
    "controller-manager-paused": {1: "unproven: no-anchor"},
    "unreachable-taints-stay": {7: "unproven: no-anchor", 8: "unproven: no-anchor"},
}


@pytest.fixture(params=FROZEN)
def frozen(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """Return each frozen run in turn."""
    with thawed(RUNS / request.param) as scenario:
        yield scenario


def test_frozen_run_keeps_its_verdicts(frozen: Scenario) -> None:
    changed = CHANGED.get(_name(frozen), {})
    judged = rejudge(frozen, CLAIMS).judged
    assert judged
    for number, ((judgment, verdict), row) in enumerate(zip(judged, frozen.rows, strict=False)):
        if number in changed:
            assert verdict.label == changed[number] != verdict_of(row).label
        else:
            assert _without_wording(json.loads(json.dumps(verdict.to_json()))) == _without_wording(row), (
                judgment.claim
            )


def test_conforming_claim_of_a_frozen_run_can_deviate(frozen: Scenario) -> None:
    """Another cluster deviates, and a recording with holes proves nothing."""
    history, configuration = frozen.history(), frozen.configuration()
    for judgment, verdict in rejudge(frozen, CLAIMS).judged:
        if verdict.outcome != "conforms":
            continue
        judged = Judged(judgment, CLAIMS[judgment.claim], history, configuration)
        altered = list(falsified(judged))
        assert len(altered) >= LEAST_WAYS, judgment.claim
        assert judgment.check.name != "after" or LATE & {variant.how for variant in altered}, judgment.claim
        for variant in altered:
            altered_verdict = judge(judged.claim, judgment.check, variant.history, variant.configuration)
            assert altered_verdict.label in variant.expected, (
                f"{judgment.claim}: {variant.how}: {altered_verdict.reason}"
            )


def test_frozen_runs_cover_every_outcome_and_code_in_both_labs() -> None:
    outcomes, codes, labs = set(), set(), set()
    for name in FROZEN:
        with thawed(RUNS / name) as scenario:
            for _judgment, verdict in rejudge(scenario, CLAIMS).judged:
                outcomes.add(verdict.outcome)
                codes.add(verdict.code)
            labs.add(scenario.configuration().lab)
    assert outcomes == set(get_args(Outcome))
    # An audit gives the first without a check; a frozen run has no owner who aborts, and is no storm.
    assert codes == set(get_args(Code)) - {"settings-unknown", "aborted", "not-met"}
    assert labs == {"process", "libvirt"}


def _name(scenario: Scenario) -> str:
    return scenario.folder.name


def _without_wording(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a verdict without its wording."""
    window = dict(row["window"] or {})
    window.pop("arithmetic", None)
    return {"window": window, **{name: row[name] for name in ("verdict", "code", "measured")}}
