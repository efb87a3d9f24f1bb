"""Verdicts in words: what a scenario's result says, in pytest and in Allure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeproof.model.claim import Claim
from nodeproof.model.verdict import Verdict

Told = tuple[str, Verdict]
"""A claim's id and what it came to."""


def message(told: Iterable[Told], claims: Mapping[str, Claim], kubernetes_version: str) -> str:
    """For people: which claims did not conform, their statements, windows, observed values and last
    states.
    """
    parts = []
    for claim, verdict in told:
        if verdict.outcome == "conforms":
            continue
        lines = [f"{claim} {verdict.label}: {verdict.reason}"]
        if claim in claims:
            lines.append(f"  claim:    {claims[claim].statement}")
        if verdict.window:
            lines.append(f"  window:   {verdict.window.arithmetic}")
        if verdict.measured:
            lines.append(f"  observed: {verdict.measured}")
        if verdict.last_state:
            lines.append(f"  last:     {verdict.last_state}")
        parts.append("\n".join([*lines, f"  cluster:  Kubernetes {kubernetes_version}"]))
    return "\n".join(parts)


def summary(told: Iterable[Told]) -> str:
    """A line for each."""
    lines = []
    for claim, verdict in told:
        window = f"  window {verdict.window.arithmetic}" if verdict.window else ""
        lines.append(f"{claim}: {verdict.label}: {verdict.reason}{window}")
    return "\n".join(lines)
