"""Collects a scenario's judgments and closes them: all are evaluated, the first failure hides none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from nodeproof.checks.judge import died, judge
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import PROBED, History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.slack import stood_still_s
from nodeproof.model.verdict import Code, Verdict, unproven, worst
from nodeproof.model.window import WindowSpec
from nodeproof.report.rundir import Row, row


class Unproven(Exception):
    """A scenario ended without knowing: neither a failure of the cluster nor a success."""


@dataclass
class Judge:
    """`judge(claim, check)`: what a scenario asks of its recording, answered when the scenario ends."""

    declared: tuple[str, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    judgments: list[Judgment] = field(default_factory=list)

    def __call__(self, claim: str, check: Check) -> None:
        """Decide `claim` by `check`; a claim may be decided by several.

        Raises Problem when the scenario's marker does not declare the claim.
        """
        if claim not in self.declared:
            declared = ", ".join(self.declared)
            raise Problem(f"judged and not declared: {claim}", "scenario", f"@claims names: {declared}")
        self.judgments.append(Judgment(claim, check))

    def window(self, claim: str) -> WindowSpec:
        """The window that the claim's YAML gives. Raises Problem where it gives none."""
        found = self.claims[claim].window if claim in self.claims else None
        if found is None:
            raise Problem(f"{claim} has no window", "scenario", "give it one: `window` in its YAML")
        return found


JUDGE = pytest.StashKey[Judge]()


@dataclass(frozen=True)
class Closed:
    """A scenario's judgments with their verdicts; those without a judgment come after the judged ones."""

    judged: tuple[tuple[Judgment, Verdict], ...]
    unjudged: tuple[tuple[str, Verdict], ...]

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Claim and verdict of all of them."""
        return [(judgment.claim, verdict) for judgment, verdict in self.judged] + list(self.unjudged)

    def worst(self) -> Verdict:
        """The verdict that decides the scenario."""
        return worst(verdict for _claim, verdict in self.verdicts())

    def rows(self, claims: dict[str, Claim], scenario: str, configuration: Configuration) -> list[Row]:
        """The scenario's rows of `verdicts.json`."""
        return [row(claims[claim], scenario, verdict, configuration) for claim, verdict in self.verdicts()]


def close(
    declared: Sequence[Claim],
    judgments: Sequence[Judgment],
    history: History,
    configuration: Configuration,
    broken: str,
) -> Closed:
    """Evaluate every judgment; a declared claim that got none is unproven.

    `broken` says why the scenario broke off, if it did: then every declared claim is also unproven, as
    nobody knows what else it would have judged. What deviates before that still deviates.
    """
    by_id = {claim.id: claim for claim in declared}
    judged = tuple(
        (judgment, judge(by_id[judgment.claim], judgment.check, history, configuration))
        for judgment in judgments
    )
    asked = set() if broken else {judgment.claim for judgment in judgments}
    reason = (
        f"the scenario broke off: {broken}"
        if broken
        else "the scenario declares the claim and never judged it"
    )
    code = code_of(history)
    if broken and code == "gap" and stood_still_s(history) > configuration.slack_limit_s:
        code = "host-too-loaded"
    left = tuple((claim.id, unproven(code, reason)) for claim in declared if claim.id not in asked)
    return Closed(judged, left)


def code_of(history: History) -> Code:
    """Why nothing is known of what was not judged: a component's death, a fault that is not in, or missing
    evidence.
    """
    if died(history) is not None:
        return "component-died"
    probed = {
        entry.data["id"]: entry.data["step"]
        for entry in history.of_kind("fault")
        if entry.data["step"] in ("injecting", *PROBED)
    }
    return "not-injected" if set(probed.values()) - {"injected"} else "gap"


def without_running(declared: Sequence[Claim], code: Code, reason: str) -> Closed:
    """Every declared claim unproven for a reason that is known before the scenario starts."""
    return Closed((), tuple((claim.id, unproven(code, reason)) for claim in declared))
