"""The outcome of one judgment, and the combination of several outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span
from nodeproof.model.window import Window

Outcome = Literal["conforms", "deviates", "unproven"]
Agreement = Literal["agrees", "differs", "silent", "unknown"]
Code = Literal[
    "",
    "not-applicable",
    "lab-lacks",
    "scaled",
    "settings-unknown",
    "not-met",
    "aborted",
    "not-injected",
    "no-anchor",
    "gap",
    "component-died",
    "host-too-loaded",
    "check-failed",
]
SKIP_CODES: frozenset[str] = frozenset(
    {"not-applicable", "lab-lacks", "scaled", "settings-unknown", "not-met"}
)
"""Codes by which nothing is left to prove in this run; pytest skips with the reason."""


@dataclass(frozen=True)
class Measured:
    """An observed value with its unit."""

    value: float | str
    unit: str = ""

    def __str__(self) -> str:
        number = f"{self.value:.3f}" if isinstance(self.value, float) else self.value
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True)
class Outlier:
    """Times between events of a series, of which one is too long or too short for `window`."""

    window: Window
    gaps: tuple[Span, ...]

    def __str__(self) -> str:
        return " or ".join(f"{gap.length_s:.3f} s" for gap in self.gaps)


@dataclass(frozen=True)
class Page:
    """Agreement between page and cluster: the page's text, the version's behaviour, known drift."""

    agreement: Agreement
    text: str = ""
    cluster: str = ""
    drift: str = ""

    def to_json(self) -> Mapping[str, str]:
        """Return the JSON stored in `verdicts.json`."""
        return {"agreement": self.agreement, "says": self.text, "cluster": self.cluster, "drift": self.drift}


@dataclass(frozen=True)
class Verdict:
    """The outcome of one judgment.

    `code` is set exactly if `outcome` is unproven (ValueError otherwise). `last_state` is the last recorded
    state of the judged object, to help explain a failure. `reported` is the issue of a bug that explains a
    deviation, or by which a version that conforms was known to deviate. `kubelet_version` is the version of
    the kubelet that the claim is about, if it is not the API server's. `outliers` are why a series of events
    deviates; they are not stored.
    """

    outcome: Outcome
    code: Code
    reason: str
    window: Window | None = None
    measured: Measured | None = None
    last_state: str = ""
    reported: str = ""
    kubelet_version: str = ""
    outliers: tuple[Outlier, ...] = ()

    def __post_init__(self) -> None:
        if (self.outcome == "unproven") != bool(self.code):
            raise ValueError(f"a verdict {self.outcome} cannot have code {self.code!r}")

    @property
    def is_skip(self) -> bool:
        """Whether pytest shows the verdict as a skip."""
        return self.outcome == "unproven" and self.code in SKIP_CODES

    @property
    def is_proven(self) -> bool:
        """Whether the evidence sufficed."""
        return self.outcome != "unproven"

    @property
    def is_known(self) -> bool:
        """Whether it deviates as reported; this fails no run."""
        return self.outcome == "deviates" and bool(self.reported)

    @property
    def is_failure(self) -> bool:
        """Whether it deviates, and not as reported."""
        return self.outcome == "deviates" and not self.reported

    @property
    def label(self) -> str:
        """`conforms`, `deviates`, `unproven: code`, `deviates: reported` or `conforms: fixed?`."""
        if self.reported:
            return f"{self.outcome}: {'reported' if self.is_known else 'fixed?'}"
        return f"unproven: {self.code}" if self.outcome == "unproven" else self.outcome

    @property
    def rank(self) -> int:
        """Precedence among the verdicts of one scenario: deviates, other unproven, known, skip, conforms."""
        if self.outcome == "deviates":
            return 2 if self.is_known else 0
        if self.outcome == "unproven":
            return 3 if self.is_skip else 1
        return 4

    def to_json(self) -> Mapping[str, Json]:
        """Return the verdict's part of a `verdicts.json` row."""
        return {
            "verdict": self.outcome,
            "code": self.code or None,
            "reason": self.reason,
            "window": self.window.to_json() if self.window else None,
            "measured": {"value": self.measured.value, "unit": self.measured.unit} if self.measured else None,
            "last_state": self.last_state,
            **({"reported": self.reported} if self.reported else {}),
            **({"kubelet_version": self.kubelet_version} if self.kubelet_version else {}),
        }


def conforms(reason: str, window: Window | None = None, measured: Measured | None = None) -> Verdict:
    """Return the verdict for expected behaviour of the version."""
    return Verdict("conforms", "", reason, window, measured)


def deviates(
    reason: str, window: Window | None = None, measured: Measured | None = None, last_state: str = ""
) -> Verdict:
    """Return the verdict for other behaviour."""
    return Verdict("deviates", "", reason, window, measured, last_state)


def unproven(
    code: Code, reason: str, window: Window | None = None, measured: Measured | None = None
) -> Verdict:
    """Return the verdict for insufficient evidence; `code` gives the reason."""
    return Verdict("unproven", code, reason, window, measured)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides a scenario.

    Raises:
        ValueError: There are no verdicts.
    """
    return min(verdicts, key=lambda verdict: verdict.rank)
