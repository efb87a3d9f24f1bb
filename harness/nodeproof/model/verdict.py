"""The outcome of one judgment, and how many of them make one outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nodeproof.model.window import Window

Json = Any
Outcome = Literal["conforms", "deviates", "unproven"]
Agreement = Literal["agrees", "differs", "silent", "unknown"]
Code = Literal[
    "",
    "not-applicable",
    "lab-lacks",
    "scaled",
    "not-injected",
    "no-anchor",
    "gap",
    "component-died",
    "host-too-loaded",
    "check-failed",
]
SKIP_CODES: frozenset[str] = frozenset({"not-applicable", "lab-lacks", "scaled"})
"""Unproven for a reason that no run of this selection can change; pytest skips with the reason."""


@dataclass(frozen=True)
class Measured:
    """An observed value with its unit."""

    value: float | str
    unit: str = ""

    def __str__(self) -> str:
        number = f"{self.value:.3f}" if isinstance(self.value, float) else self.value
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True)
class Page:
    """Whether the page agrees with the cluster: what the page says, what the version does, known drift."""

    agreement: Agreement
    says: str = ""
    cluster: str = ""
    drift: str = ""


@dataclass(frozen=True)
class Verdict:
    """One judgment's outcome.

    `code` is set exactly when `outcome` is unproven (ValueError otherwise). `last_state` is what was seen
    last of the judged object, for a person who has to understand a failure.
    """

    outcome: Outcome
    code: Code
    reason: str
    window: Window | None = None
    measured: Measured | None = None
    last_state: str = ""

    def __post_init__(self) -> None:
        if (self.outcome == "unproven") != bool(self.code):
            raise ValueError(f"a verdict that is {self.outcome} has code {self.code!r}")

    @property
    def is_skip(self) -> bool:
        """Whether pytest shows this as a skip."""
        return self.outcome == "unproven" and self.code in SKIP_CODES

    @property
    def label(self) -> str:
        """`conforms`, `deviates`, or `unproven: code`."""
        return f"unproven: {self.code}" if self.outcome == "unproven" else self.outcome

    @property
    def rank(self) -> int:
        """Precedence among the verdicts of one scenario: deviates, other unproven, skip, conforms."""
        if self.outcome == "deviates":
            return 0
        if self.outcome == "unproven":
            return 2 if self.is_skip else 1
        return 3

    def to_json(self) -> Mapping[str, Json]:
        """The verdict's part of a `verdicts.json` row."""
        return {
            "verdict": self.outcome,
            "code": self.code or None,
            "reason": self.reason,
            "window": self.window.to_json() if self.window else None,
            "measured": {"value": self.measured.value, "unit": self.measured.unit} if self.measured else None,
            "last_state": self.last_state,
        }


def conforms(reason: str, window: Window | None = None, measured: Measured | None = None) -> Verdict:
    """The cluster did what was expected of its version."""
    return Verdict("conforms", "", reason, window, measured)


def deviates(
    reason: str, window: Window | None = None, measured: Measured | None = None, last_state: str = ""
) -> Verdict:
    """The cluster was seen to do something else."""
    return Verdict("deviates", "", reason, window, measured, last_state)


def unproven(
    code: Code, reason: str, window: Window | None = None, measured: Measured | None = None
) -> Verdict:
    """Nothing is known; `code` says why."""
    return Verdict("unproven", code, reason, window, measured)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides a scenario. Raises ValueError when there is none."""
    return min(verdicts, key=lambda verdict: verdict.rank)
