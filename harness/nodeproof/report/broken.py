"""A broken result for Allure, of a scenario that nobody was left to write one of."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from allure_commons.logger import AllureFileLogger
from allure_commons.model2 import Label, Link, Status, StatusDetails, TestResult

from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.report import behaviours

DIED = " (its worker died)"
"""Ends the name of a scenario whose worker died in it."""


def report(
    run: Path,
    nodeid: str,
    claims: Iterable[str],
    reason: str,
    known: Mapping[str, Claim],
    at_s: float | None = None,
) -> None:
    """Let the run's site show the scenario as broken, below the claims that it should have judged.

    `known` is the catalogue; `at_s` is when (s since 1970), where that is not now.
    """
    claims = sorted(set(claims))
    result = TestResult(
        uuid=str(uuid.uuid4()),
        name=behaviours.title(nodeid),
        fullName=nodeid,
        status=Status.BROKEN,
        statusDetails=StatusDetails(message=redact.text(reason)),
    )
    result.labels = [Label(name, value) for name, value in behaviours.labels(nodeid, claims, known)]
    result.links = [Link("link", address, name) for address, name in behaviours.links(claims)]
    result.start = result.stop = int((time.time() if at_s is None else at_s) * 1000)
    AllureFileLogger(str(run / "allure-results")).report_result(result)
