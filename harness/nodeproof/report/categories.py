"""What deviates, as Allure groups it: what is new stands apart from what deviated before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodeproof.model.claim import Claim
from nodeproof.report import behaviours
from nodeproof.report.digest import Digest
from nodeproof.report.since import Since

Json = Any
NEW, STANDING = "deviates: new", "deviates: since an earlier run"
NEW_BESIDE_DRIFT = "deviates: new, where page and code are known to differ"


def deviations(told: Digest, earlier: Mapping[str, Since], claims: Mapping[str, Claim]) -> list[Json]:
    """Categories of the scenarios that deviate, the newest first. What a scenario has that is new counts.

    That page and code are known to differ excuses nothing, as verdicts are about the version that ran; it may
    be why the catalogue is wrong of a new version.
    """
    found: dict[str, set[str]] = {}
    for row in told.rows:
        if row["verdict"] == "deviates":
            found.setdefault(row["scenario"], set()).add(_category(row["claim"], earlier, claims))
    ordered: dict[str, list[str]] = {NEW: [], NEW_BESIDE_DRIFT: [], STANDING: []}
    for scenario, names in sorted(found.items()):
        ordered[next(name for name in ordered if name in names)].append(scenario)
    return [
        {"name": name, "expand": True, "matchers": [_of(scenario) for scenario in scenarios]}
        for name, scenarios in ordered.items()
        if scenarios
    ]


def _category(claim: str, earlier: Mapping[str, Since], claims: Mapping[str, Claim]) -> str:
    if claim in earlier and not earlier[claim].is_new:
        return STANDING
    return NEW_BESIDE_DRIFT if claim in claims and claims[claim].drift else NEW


def _of(scenario: str) -> Json:
    return {"statuses": ["failed"], "labels": {behaviours.SCENARIO: f"^{_quoted(scenario)}$"}}


def _quoted(text: str) -> str:
    """As a pattern of JavaScript, which takes fewer escapes than Python's `re.escape` gives."""
    return re.sub(r"([\\^$.*+?()[\]{}|/])", r"\\\1", text)
