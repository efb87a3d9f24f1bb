"""Collect a scenario's judgments and evaluate all of them at its end, whatever fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from nodeproof.checks.judge import died, judge
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import PROBED, History
from nodeproof.model.judgment import Check, Judgment
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.slack import stood_still_s
from nodeproof.model.verdict import Code, Verdict, unproven, worst
from nodeproof.model.window import WindowSpec
from nodeproof.report.rundir import Row, row


class Unproven(Exception):
    """A scenario ended without evidence for or against its claims."""


@dataclass
class Judge:
    """The fixture `judge`: collects checks of the recording, which are evaluated when the scenario ends."""

    declared: tuple[str, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    judgments: list[Judgment] = field(default_factory=list)

    def __call__(self, claim: str, check: Check) -> None:
        """Decide `claim` by `check`; a claim may have several checks.

        Raises:
            Problem: The scenario's marker does not declare the claim.
        """
        if claim not in self.declared:
            declared = ", ".join(self.declared)
            raise Problem(
                f"claim {claim} is judged but missing from @claims", "scenario", f"it declares: {declared}"
            )
        self.judgments.append(Judgment(claim, check))

    def window(self, claim: str) -> WindowSpec:
        """Return the window in the claim's YAML.

        Raises:
            Problem: The claim has no window.
        """
        window = self.claims[claim].window if claim in self.claims else None
        if window is None:
            raise Problem(f"claim {claim} has no window", "scenario", "add `window` to its YAML")
        return window


JUDGE = pytest.StashKey[Judge]()


@dataclass(frozen=True)
class Closed:
    """A scenario's judgments with their verdicts, and the verdicts of claims without a judgment."""

    judged: tuple[tuple[Judgment, Verdict], ...]
    unjudged: tuple[tuple[str, Verdict], ...]

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Return claim and verdict of all judgments, then of the claims without one."""
        return [(judgment.claim, verdict) for judgment, verdict in self.judged] + list(self.unjudged)

    def worst(self) -> Verdict:
        """Return the worst verdict, which decides the scenario."""
        return worst(verdict for _claim, verdict in self.verdicts())

    def rows(self, claims: dict[str, Claim], scenario: str, configuration: Configuration) -> list[Row]:
        """Return the scenario's rows for `verdicts.json`."""
        return [row(claims[claim], scenario, verdict, configuration) for claim, verdict in self.verdicts()]


def close(
    declared: Sequence[Claim],
    judgments: Sequence[Judgment],
    history: History,
    configuration: Configuration,
    broken: str,
) -> Closed:
    """Evaluate every judgment; a declared claim without one is unproven.

    `broken` is why the scenario was aborted, empty if it was not. Every declared claim of an aborted scenario
    is unproven in addition to its judgments, as more judgments may be missing. A deviation stays one.
    """
    by_id = {claim.id: claim for claim in declared}
    judged = tuple(
        (judgment, judge(by_id[judgment.claim], judgment.check, history, configuration))
        for judgment in judgments
    )
    complete = set() if broken else {judgment.claim for judgment in judgments}
    reason = (
        f"the scenario broke off: {broken}"
        if broken
        else "the scenario declares the claim and never judged it"
    )
    code = code_of(history)
    is_loaded = stood_still_s(history) > configuration.slack_limit_s or broken.startswith(
        HostTooLoaded.__name__
    )
    if broken and code == "gap" and is_loaded:
        code = "host-too-loaded"
    unjudged = tuple((claim.id, unproven(code, reason)) for claim in declared if claim.id not in complete)
    return Closed(judged, unjudged)


def code_of(history: History) -> Code:
    """Return why unjudged claims are unproven: a component died, a fault was not injected, or a gap."""
    if died(history) is not None:
        return "component-died"
    last_steps = {
        entry.data["id"]: entry.data["step"]
        for entry in history.of_kind("fault")
        if entry.data["step"] in ("injecting", *PROBED)
    }
    return "not-injected" if set(last_steps.values()) - {"injected"} else "gap"


def without_running(declared: Sequence[Claim], code: Code, reason: str) -> Closed:
    """Return all declared claims as unproven, without any judgment."""
    return Closed((), tuple((claim.id, unproven(code, reason)) for claim in declared))
