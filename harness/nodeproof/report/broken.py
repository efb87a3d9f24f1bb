"""A broken result for Allure, of a scenario that nobody was left to write one of."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from allure_commons.logger import AllureFileLogger
from allure_commons.model2 import Label, Status, StatusDetails, TestResult

from nodeproof.model import redact

DIED = " (its worker died)"
"""Ends the name of a scenario whose worker died in it."""


def report(run: Path, nodeid: str, claims: Iterable[str], reason: str, at_s: float | None = None) -> None:
    """Let the run's site show the scenario as broken, below the claims that it should have judged.

    `at_s` is when (s since 1970), where that is not now.
    """
    claims = sorted(set(claims))
    areas = sorted({claim.partition(".")[0] for claim in claims})
    result = TestResult(
        uuid=str(uuid.uuid4()),
        name=nodeid.rpartition("::")[2],
        fullName=nodeid,
        status=Status.BROKEN,
        statusDetails=StatusDetails(message=redact.text(reason)),
    )
    result.labels = [Label("epic", area) for area in areas]
    result.labels += [Label(name, claim) for claim in claims for name in ("feature", "claim")]
    result.start = result.stop = int((time.time() if at_s is None else at_s) * 1000)
    AllureFileLogger(str(run / "allure-results")).report_result(result)
